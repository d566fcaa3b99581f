"""What the kernel says of links: parsed whole or not at all, told once, only of those wanted."""

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.probes.links.netlink import LinkEvent, LinkEvents, OverrunError, link_events

_NEW, _DELETED, _OVERRUN = 16, 17, 4
_UP = 0x1 | 0x40 | 0x10000


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _message(name: str, flags: int = _UP, operstate: int = 6, kind: int = _NEW) -> bytes:
    body = struct.pack("=BxHiII", 0, 1, 7, flags, 0xFFFFFFFF)
    body += _attribute(3, name.encode() + b"\0") + _attribute(16, bytes([operstate]))
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


class Listener:
    """Counts how often a look was asked for."""

    def __init__(self, *wanted: str) -> None:
        self.events = LinkEvents(lambda name: name in wanted)
        self.looks = 0

    def _wake(self) -> None:
        self.looks += 1

    def hear(self, *messages: bytes) -> int:
        """Hear a datagram, and return how many looks were asked for until now."""
        self.events.handle_datagram(b"".join(messages), self._wake)
        return self.looks


def test_a_message_says_which_link_it_is_and_what_state_it_has() -> None:
    assert list(link_events(_message("eth0"))) == [LinkEvent(7, "eth0", (_UP, 6), False)]


def test_a_change_of_a_link_asks_for_one_look_and_a_repetition_for_none() -> None:
    listener = Listener("eth0")
    assert listener.hear(_message("eth0")) == 1
    assert listener.hear(_message("eth0"), _message("eth0")) == 1
    assert listener.hear(_message("eth0", operstate=2)) == 2
    assert listener.hear(_message("eth0", kind=_DELETED)) == 3


def test_interfaces_that_nobody_watches_ask_for_no_look() -> None:
    listener = Listener("eth0")
    assert listener.hear(_message("veth1"), _message("veth1", kind=_DELETED)) == 0


def test_messages_that_the_kernel_dropped_ask_for_a_look() -> None:
    overrun = struct.pack("=IHHII", 16, _OVERRUN, 0, 1, 0)
    assert Listener().hear(overrun) == 1
    with pytest.raises(OverrunError):
        list(link_events(overrun))


@given(st.binary(max_size=400))
def test_nothing_that_comes_in_ends_the_listener(datagram: bytes) -> None:
    Listener("eth0").hear(datagram)


@given(st.data())
def test_a_damaged_message_yields_nothing_that_is_not_in_it(data: st.DataObject) -> None:
    whole = bytearray(_message("eth0"))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        assert len(list(link_events(cut))) <= 1
    except OverrunError:
        assert at == 4


def test_a_kernel_without_netlink_leaves_polling_and_says_so() -> None:
    async def scenario() -> str:
        events = LinkEvents(lambda _: True, _refuse)
        events.listen(lambda: None)()
        return events.deaf

    assert asyncio.run(scenario()) == "link changes are only polled: [Errno 1] not permitted"


def _refuse() -> socket.socket:
    raise PermissionError(1, "not permitted")
