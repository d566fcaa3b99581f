"""What controllers tell of themselves, and which versions may follow which."""

import pytest

from everstep_controller.standby.told import ControllerTold, controller_told, skew_problem


def test_what_is_told_is_read_back() -> None:
    told = ControllerTold(
        address="ctl-1:7433", host="ctl-1", pid=17, version="0.1.0", seq=99, behind_s=0.5
    )
    assert controller_told(told.encode()) == told


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", "[" * 100_000])
def test_what_a_hand_has_written_tells_nothing(text: str) -> None:
    assert controller_told(text) == ControllerTold()


def test_a_value_of_another_kind_is_left_out_and_a_newer_key_is_not_known() -> None:
    told = controller_told('{"address": 7, "pid": 3, "behind_s": 1, "colour": "red"}')
    assert told == ControllerTold(pid=3, behind_s=1.0)


def test_a_text_is_not_kept_at_any_length() -> None:
    assert len(controller_told(ControllerTold(address="x" * 10_000).encode()).address) == 200


@pytest.mark.parametrize(
    ("own", "writer"),
    [("0.1.0", "0.1.0"), ("0.2.0", "0.1.9"), ("0.1.3", "0.1.0"), ("1.4.0", "1.3.7"), ("0.1.0", "")],
)
def test_a_standby_may_be_newer_by_one_minor_version(own: str, writer: str) -> None:
    assert skew_problem(own, writer) == ""


@pytest.mark.parametrize(("own", "writer"), [("0.1.0", "0.2.0"), ("0.1.0", "0.1.1")])
def test_an_older_standby_is_told_to_be_upgraded_first(own: str, writer: str) -> None:
    assert "install the newer version here first" in skew_problem(own, writer)


@pytest.mark.parametrize(("own", "writer"), [("0.3.0", "0.1.0"), ("1.0.0", "0.9.0")])
def test_one_that_is_much_newer_waits_for_the_other_to_be_upgraded(own: str, writer: str) -> None:
    assert "upgrade the other one first" in skew_problem(own, writer)
