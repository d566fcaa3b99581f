"""Netlink probe: learns from the kernel at once that a network link changed."""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

logger = logging.getLogger(__name__)

# include/uapi/linux/rtnetlink.h, netlink.h and if_link.h
_RTMGRP_LINK = 1
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_NLMSG_OVERRUN = 4
_IFLA_IFNAME, _IFLA_OPERSTATE = 3, 16
# include/uapi/linux/if.h: IFF_UP, IFF_RUNNING, IFF_LOWER_UP
_STATE_FLAGS = 0x1 | 0x40 | 0x10000
_MESSAGE = struct.Struct("=IHHII")
_INTERFACE = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
# The kernel packs a datagram of link messages into at most this much.
_DATAGRAM_BYTES = 65536
# Receive buffer: far more than the events of a switch restart on one node.
_BUFFER_BYTES = 1 << 20
# How many datagrams one turn of the event loop reads before other tasks run.
_DATAGRAMS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """Message on one interface; ``state`` is all of it that can change its link."""

    index: int
    name: str
    state: tuple[int, int]
    gone: bool


class OverrunError(Exception):
    """The kernel dropped messages: only a look at every link tells what changed."""


def link_events(datagram: bytes) -> Iterator[LinkEvent]:
    """Yield the link messages of a datagram; what is damaged ends it. Raises OverrunError."""
    for kind, body in _blocks(datagram, _MESSAGE, 4):
        if kind == _NLMSG_OVERRUN:
            raise OverrunError
        if kind not in (_RTM_NEWLINK, _RTM_DELLINK) or len(body) < _INTERFACE.size:
            continue
        _, _, index, flags, _ = _INTERFACE.unpack_from(body)
        name, operstate = "", 0
        for attribute, value in _blocks(body[_INTERFACE.size :], _ATTRIBUTE, 4):
            if attribute == _IFLA_IFNAME:
                name = value.rstrip(b"\0").decode("utf-8", "replace")
            elif attribute == _IFLA_OPERSTATE and value:
                operstate = value[0]
        state = (flags & _STATE_FLAGS, operstate)
        yield LinkEvent(index, name, state, kind == _RTM_DELLINK)


def _blocks(data: bytes, header: struct.Struct, align: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of blocks whose length, header included, comes first."""
    at = 0
    while at + header.size <= len(data):
        length, kind = header.unpack_from(data, at)[:2]
        if length < header.size or at + length > len(data):
            return
        yield kind, data[at + header.size : at + length]
        at += (length + align - 1) // align * align


def open_link_socket() -> socket.socket:
    """Return a socket that hears of every link. Raises OSError, AttributeError off Linux."""
    link = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
    )
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        link.bind((0, _RTMGRP_LINK))
    except OSError:
        link.close()
        raise
    return link


class LinkEvents:
    """Asks for a look when the link of an interface changes that somebody wants to hear of.

    Containers make and remove interfaces all the time, which is no reason to look.
    """

    def __init__(
        self,
        wanted: Callable[[str], bool],
        open_socket: Callable[[], socket.socket] = open_link_socket,
    ) -> None:
        self._wanted = wanted
        self._open_socket = open_socket
        self._states: dict[int, tuple[int, int]] = {}
        # Why link changes are found by polling only; empty while the kernel reports them.
        self.deaf = ""

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Listen on the running event loop; return what ends it. See Source.listen."""
        try:
            link = self._open_socket()
        except (OSError, AttributeError) as error:
            self._go_deaf(error)
            return lambda: None
        self.deaf = ""
        loop = asyncio.get_running_loop()
        loop.add_reader(link, self._read, link, wake)

        def stop() -> None:
            loop.remove_reader(link)
            link.close()

        return stop

    def _read(self, link: socket.socket, wake: Callable[[], None]) -> None:
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                datagram, sender = link.recvfrom(_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    self._go_deaf(error)
                    asyncio.get_running_loop().remove_reader(link)
                self._resync(wake)
                return
            # Any process may send to this socket; the kernel is number 0.
            if sender[0] == 0:
                self.handle_datagram(datagram, wake)

    def handle_datagram(self, datagram: bytes, wake: Callable[[], None]) -> None:
        """Look through what the kernel sent, and wake who waits for a change in it."""
        try:
            changed = [event for event in link_events(datagram) if self._is_news(event)]
        except OverrunError:
            self._resync(wake)
            return
        if any(self._wanted(event.name) for event in changed):
            wake()

    def _go_deaf(self, error: Exception) -> None:
        self.deaf = f"link changes are only polled: {error}"
        logger.warning("%s", self.deaf)

    def _is_news(self, event: LinkEvent) -> bool:
        if event.gone:
            self._states.pop(event.index, None)
            return True
        known = self._states.get(event.index)
        self._states[event.index] = event.state
        return known != event.state

    def _resync(self, wake: Callable[[], None]) -> None:
        self._states.clear()
        wake()
