"""Socket owner: which user of this node has the other end of a TCP connection (sock_diag(7)).

The kernel looks the other end up by its addresses and answers in the call that asks, in a few
microseconds. It knows the sockets of this process's network namespace only: a process in another
one, as in a container with a network of its own, is found no more than one of another node.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TypeAlias

# An address as the socket module has it: host and port, for IPv6 also flow and scope.
SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

# include/uapi/linux: netlink.h, sock_diag.h, inet_diag.h, rtnetlink.h.
_NETLINK_ROUTE, _NETLINK_SOCK_DIAG = 0, 4
_BY_FAMILY, _GET_ROUTE, _ERROR, _REQUEST = 20, 26, 2, 1
_ALL_STATES, _NO_COOKIE = 0xFFFFFFFF, 0xFFFFFFFF
# nlmsghdr and the beginning of inet_diag_req_v2; then its inet_diag_sockid.
_HEAD = struct.Struct("=IHHIIBBBBI")
_PORTS = struct.Struct("!HH")
_TAIL = struct.Struct("=III")
_REQUEST_BYTES = _HEAD.size + _PORTS.size + 32 + _TAIL.size
_HEADER = struct.Struct("=IHHII")
# inet_diag_msg, behind its header: state, user and inode.
_MESSAGE = struct.Struct("=xBxx48xIIIII")
_CODE = struct.Struct("=i")
# rtmsg: family, bits of the destination, type, flags; then its attributes, each behind this.
_ROUTE, _ATTRIBUTE = struct.Struct("=BBxxxxxBI"), struct.Struct("=HH")
_TO_LOCAL, _BY_TABLE, _DESTINATION, _INTERFACE = 2, 0x2000, 1, 4
_ANSWER_BYTES_MAX = 4096

# include/net/tcp_states.h: of a connection that never came about, of one that was reset, and of a
# listener.
_SYN_SENT, _CLOSED, _LISTEN = 2, 7, 10
_ROOT = 0
_MAPPED = bytes(10) + b"\xff\xff"
# The address that stands for none, and the one of loopback.
_UNSET = {socket.AF_INET: ("0.0.0.0", "127.0.0.1"), socket.AF_INET6: ("::", "::1")}


@dataclass(frozen=True, slots=True)
class SocketOwner:
    """The user who made a socket, and whether a process still has it open."""

    uid: int
    is_open: bool


class Origin(Enum):
    """Where a connection comes from, as far as this node's kernel tells."""

    # A process of this agent's user, or of root, on this node.
    AGENT = auto()
    # Somebody else's process on this node.
    OTHER_USER = auto()
    # A process of this node that has closed its end already, so whose it was is not known any more.
    GONE = auto()
    # Another node, or another network namespace of this one.
    ELSEWHERE = auto()


def origin_of(owner: SocketOwner | None, agent_uid: int) -> Origin:
    """Return where a connection comes from whose other end has this owner here, or none."""
    if owner is None:
        return Origin.ELSEWHERE
    if not owner.is_open:
        return Origin.GONE
    return Origin.AGENT if owner.uid in (agent_uid, _ROOT) else Origin.OTHER_USER


def encode_request(
    source: SocketAddress, destination: SocketAddress, interface: int = 0, sequence: int = 0
) -> bytes:
    """Return the question whose the socket is that is connected from one address to another."""
    family, host = _packed(source[0])
    _, other = _packed(destination[0])
    head = (_REQUEST_BYTES, _BY_FAMILY, _REQUEST, sequence, 0)
    return b"".join(
        (
            _HEAD.pack(*head, family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES),
            _PORTS.pack(source[1], destination[1]),
            host.ljust(16, b"\0"),
            other.ljust(16, b"\0"),
            _TAIL.pack(interface, _NO_COOKIE, _NO_COOKIE),
        )
    )


def decode_answer(answer: bytes, *, listening: bool = False) -> SocketOwner | None:
    """Return the owner of a connected (or listening) socket; None: there is none.

    Raises OSError.
    """
    try:
        _, kind, _, _, _ = _HEADER.unpack_from(answer)
        if kind == _ERROR:
            (code,) = _CODE.unpack_from(answer, _HEADER.size)
            if code == -errno.ENOENT:
                return None
            raise OSError(-code, os.strerror(-code))
        state, _, _, _, uid, inode = _MESSAGE.unpack_from(answer, _HEADER.size)
    except struct.error as error:
        raise OSError(errno.EBADMSG, "the kernel's answer is too short") from error
    # Where no connection has these addresses the kernel names who listens at the first of them. One
    # that only asks to be connected was never accepted here: another node is what was.
    if (state == _LISTEN) != listening or state == _SYN_SENT:
        return None
    # Of a socket that no process has open any more the kernel says that it is root's.
    return SocketOwner(uid, is_open=inode != 0)


def encode_route_request(host: str, sequence: int = 0) -> bytes:
    """Return the question by which interface an address is this node's."""
    family, packed = _packed(host)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _DESTINATION) + packed
    length = _HEADER.size + _ROUTE.size + len(attribute)
    head = _HEADER.pack(length, _GET_ROUTE, _REQUEST, sequence, 0)
    return head + _ROUTE.pack(family, 8 * len(packed), 0, _BY_TABLE) + attribute


def decode_route(answer: bytes) -> int | None:
    """Return the interface of an own address; None: it is another node's, or nobody's."""
    try:
        length, kind, _, _, _ = _HEADER.unpack_from(answer)
        _, _, leads, _ = _ROUTE.unpack_from(answer, _HEADER.size)
        if kind == _ERROR or leads != _TO_LOCAL:
            return None
        at = _HEADER.size + _ROUTE.size
        while at < min(length, len(answer)):
            size, name = _ATTRIBUTE.unpack_from(answer, at)
            if name == _INTERFACE:
                return int(_CODE.unpack_from(answer, at + _ATTRIBUTE.size)[0])
            at += max(_ATTRIBUTE.size, size + 3 & ~3)
    except struct.error:
        pass  # the same as one that names no interface
    return None


class SocketOwners:
    """Lookup of owners, by netlink sockets of its own. Raises OSError where there are none."""

    def __init__(self) -> None:
        self._sockets = _Netlink(_NETLINK_SOCK_DIAG)
        self._routes = _Netlink(_NETLINK_ROUTE)

    def close(self) -> None:
        """End it."""
        self._sockets.close()
        self._routes.close()

    def can_find(self, listener: socket.socket) -> bool:
        """Return whether a listener of this process is found. Raises OSError.

        Without the kernel's part for TCP the answer is that there is no such socket.
        """
        host, port = listener.getsockname()[:2]
        none, loopback = _UNSET[listener.family]
        answer = self._ask((loopback if host == none else host, port), (none, 0), 0)
        found = decode_answer(answer, listening=True)
        return found is not None and found.is_open

    def find(self, source: SocketAddress, destination: SocketAddress) -> SocketOwner | None:
        """Return who connected from one address to another; None: nobody in this namespace.

        Raises OSError.
        """
        scope = source[3] if len(source) == 4 else 0
        found = decode_answer(self._ask(source, destination, scope))
        if found is not None or (interface := self._own_interface(source[0])) in (None, scope):
            return found
        return decode_answer(self._ask(source, destination, interface))

    def _ask(self, source: SocketAddress, destination: SocketAddress, interface: int) -> bytes:
        return self._sockets.ask(partial(encode_request, source, destination, interface))

    def _own_interface(self, host: str) -> int | None:
        """Return the interface that has an address, if it is one of this node's.

        A socket that is bound to an interface is found by that one only. Of two ends on one node
        the answers come in by the interface that has the address, so it can be bound to no other.
        """
        try:
            return decode_route(self._routes.ask(partial(encode_route_request, host)))
        except OSError:  # an old kernel, or a sandbox: sockets that are bound are not found there
            return None


class _Netlink:
    """One socket to a part of the kernel that answers in the call that asks."""

    def __init__(self, part: int) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, part)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Callable[[int], bytes]) -> bytes:
        """Return the answer to the request that is made with this number. Raises OSError."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        self._socket.send(request(self._sequence))
        # It lies there when send() returns; before it may lie one that a failed call has left.
        while True:
            answer = self._socket.recv(_ANSWER_BYTES_MAX)
            if len(answer) < _HEADER.size or _HEADER.unpack_from(answer)[3] == self._sequence:
                return answer


def is_reset(connection: socket.socket) -> bool:
    """Return whether the other end has reset a connection: whose it was is not known any more."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED


def plain_host(host: str) -> str:
    """Return an address as its owner calls it: IPv4 inside IPv6 is IPv4."""
    inside = host.removeprefix("::ffff:")
    return inside if "." in inside else host


def _packed(host: str) -> tuple[int, bytes]:
    """Return the family of an address and its bytes: IPv4 inside IPv6 is IPv4."""
    if ":" not in host:
        return socket.AF_INET, socket.inet_pton(socket.AF_INET, host)
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    if packed.startswith(_MAPPED):
        return socket.AF_INET, packed[len(_MAPPED) :]
    return socket.AF_INET6, packed
