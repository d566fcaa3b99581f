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


@pytest.mark.parametrize(
    "text",
    [
        '{"seq": NaN}',
        '{"seq": Infinity}',
        '{"seq": -1}',
        '{"pid": 99999999999}',
        '{"behind_s": NaN}',
        f'{{"behind_s": {"9" * 400}}}',
    ],
)
def test_a_number_that_nobody_counts_to_is_left_out(text: str) -> None:
    assert controller_told(text) == ControllerTold()


def test_a_text_has_nothing_that_a_terminal_or_a_call_does_not_take() -> None:
    told = controller_told('{"address": "\\u001b[31mctl\\r\\n:1", "host": "\\ud800\u00e9"}')
    assert told == ControllerTold(address="?[31mctl??:1", host="??")


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


@pytest.mark.parametrize("version", ["1.².0", "0", "7.1", "a.b.c"])
def test_a_version_that_is_none_is_followed(version: str) -> None:
    assert skew_problem("0.1.0", version) == ""
