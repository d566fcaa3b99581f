"""Addresses of several controllers as people write them, and what a standby says."""

import pytest

from everstep_proto.controllers import (
    ACTIVE_ADDRESS_KEY,
    addresses_problem,
    named_active,
    only_here,
    split_addresses,
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
    assert named_active(None) is None
    assert named_active((("other", "ctl-a:7433"),)) is None
    assert named_active(((ACTIVE_ADDRESS_KEY, "ctl-a:7433"),)) == "ctl-a:7433"
    assert named_active(((ACTIVE_ADDRESS_KEY, ""),)) == ""
    # What is no address is none that is known.
    assert named_active(((ACTIVE_ADDRESS_KEY, "nowhere"),)) == ""
    assert named_active(((ACTIVE_ADDRESS_KEY, b"ctl-a:7433"),)) is None
