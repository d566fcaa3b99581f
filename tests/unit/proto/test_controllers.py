"""Addresses of several controllers as people write them, and what a standby says."""

import pytest

from everstep_proto.controllers import (
    ACTIVE_ADDRESS_KEY,
    RETRY_AFTER_KEY,
    StandbyAnswer,
    addresses_problem,
    only_here,
    retry_after_s,
    split_addresses,
    standby_answer,
)


def test_addresses_are_a_list_or_a_text_with_commas() -> None:
    both = ("ctl-a:7433", "ctl-b:7433")
    assert split_addresses("ctl-a:7433") == ("ctl-a:7433",)
    assert split_addresses("ctl-a:7433, ctl-b:7433") == both
    assert split_addresses(list(both)) == both
    assert split_addresses(["ctl-a:7433,ctl-b:7433"]) == both


@pytest.mark.parametrize(
    ("addresses", "problem"),
    [
        ((), "expected an address at least"),
        (("a:1", ""), "expected unix:/path or host:port, got ''"),
        (("a:1", "b"), "got 'b'"),
        (("a:1", "b:1", "a:1"), "'a:1' is there twice"),
        (("a:1", "unix:/run/c.sock"), "of one kind"),
    ],
)
def test_what_is_wrong_with_addresses_is_said(addresses: tuple[str, ...], problem: str) -> None:
    assert problem in addresses_problem("controller", addresses)


def test_right_addresses_are_no_problem() -> None:
    assert addresses_problem("controller", ("a:1",)) == ""
    assert addresses_problem("controller", ("a:1", "[fd00::2]:1")) == ""
    assert addresses_problem("controller", ("unix:/a/c.sock", "unix:/b/c.sock")) == ""


def test_controllers_are_of_this_machine_alone_only_if_all_of_them_are() -> None:
    assert only_here(("127.0.0.1:1", "localhost:2", "unix:/a/c.sock"))
    assert not only_here(("127.0.0.1:1", "ctl-b:1"))


def test_a_standby_is_known_by_the_key_and_by_nothing_else() -> None:
    assert standby_answer(None) is None
    assert standby_answer((("other", "ctl-a:7433"),)) is None
    assert standby_answer(((ACTIVE_ADDRESS_KEY, "ctl-a:7433"),)) == StandbyAnswer("ctl-a:7433")
    assert standby_answer(((ACTIVE_ADDRESS_KEY, ""),)) == StandbyAnswer("")
    # What is no address is none that is known.
    assert standby_answer(((ACTIVE_ADDRESS_KEY, "nowhere"),)) == StandbyAnswer("")


@pytest.mark.parametrize(
    ("told", "seconds"), [("2.5", 2.5), ("1e9", 30.0), ("nan", 0.0), ("-1", 0.0), ("soon", 0.0)]
)
def test_a_standby_may_say_when_to_ask_again(told: str, seconds: float) -> None:
    answer = standby_answer(((ACTIVE_ADDRESS_KEY, ""), (RETRY_AFTER_KEY, told)))
    assert answer == StandbyAnswer("", seconds)


def test_a_fleet_asks_a_standby_a_thousand_times_a_second_at_most() -> None:
    assert (retry_after_s(0), retry_after_s(1_000)) == (1.0, 1.0)
    assert retry_after_s(12_500) == 12.5
    assert retry_after_s(1_000_000) == 30.0
