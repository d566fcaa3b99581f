"""Peer socket: the UDP socket that asks other agents and answers them, with the network's errors.

An answer is as long as its question, never longer. What the network says about a question that did
not arrive is read from the socket's error queue, because only that names who says so: "host
unreachable" of this node's own kernel is silence (nobody answered its ARP), that of a router or of
the peer is an answer.
"""

import asyncio
import errno
import hashlib
import ipaddress
import logging
import secrets
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from everstep_agent.ipc.listeners import cannot_listen
from everstep_common.addresses import split_address

logger = logging.getLogger(__name__)

# A datagram: magic and version, kind, first bytes of the SHA-256 of the asked node's name, nonce.
_DATAGRAM = struct.Struct("!4s4s8s8s")
_MAGIC = b"ESP1"
_ASK, _ANSWER = b"ask\0", b"answ"
# How many datagrams, and errors, one turn of the event loop reads before other tasks run. Where as
# many as that have come at once it rests, so that a flood takes a quarter of the loop's time: what
# the kernel has no room for meanwhile is lost, as datagrams may be.
_DATAGRAMS_AT_ONCE = 64
_RESTS_PER_READ = 3.0
_RESOLVE_TIMEOUT_S = 5.0
_PORT_MAX = 65_535
# include/uapi/linux/in.h, in6.h and errqueue.h: options, and who made an error.
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_FROM_ICMP = frozenset({2, 3})
_ERROR_BYTES = 512

Address = tuple[str, int]


def name_tag(node: str) -> bytes:
    """Return what stands for a node in a datagram: an address that changed hands stays silent."""
    return hashlib.sha256(node.encode()).digest()[:8]


class Asker(Protocol):
    """Whoever waits for the answer to a question."""

    def answered(self) -> None:
        """The peer's agent answered."""
        ...

    def unreachable(self, *, by_network: bool) -> None:
        """A datagram did not arrive; ``by_network``: not this node's own kernel says so."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """Question to a peer that is on its way."""

    nonce: bytes
    # It left this node.
    sent: bool


class PeerSocket:
    """One UDP socket that answers questions for this node, and asks those of others."""

    def __init__(self, node: str, sock: socket.socket) -> None:
        self._tag = name_tag(node)
        self._socket = sock
        self._askers: dict[bytes, Asker] = {}
        self._rest: asyncio.TimerHandle | None = None
        self._listen()

    @classmethod
    async def open(cls, node: str, host: str, port: int) -> "PeerSocket":
        """Open the socket. Raises OSError."""
        try:
            sock = await _bound(host, port)
        except OSError as error:
            raise cannot_listen("liveness_address", f"{host}:{port}", error) from error
        return cls(node, sock)

    @property
    def port(self) -> int:
        """Return the port that the socket has."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Answer and ask no more."""
        if self._rest is not None:
            self._rest.cancel()
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    def ask(self, node: str, target: Address, asker: Asker) -> Question:
        """Send a question; ``asker`` hears its answers until it is forgotten."""
        nonce = secrets.token_bytes(8)
        self._askers[nonce] = asker
        return Question(
            nonce, self._send(_DATAGRAM.pack(_MAGIC, _ASK, name_tag(node), nonce), target)
        )

    def forget(self, nonce: bytes) -> None:
        """Wait for no answer to a question any more."""
        self._askers.pop(nonce, None)

    def drain(self) -> bool:
        """Read what lies in the socket, up to a limit; return whether that was all."""
        is_empty = self._read_datagrams()
        self._read_errors()
        return is_empty

    # ---------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if not self.drain():
            loop.remove_reader(self._socket.fileno())
            rest_s = _RESTS_PER_READ * (loop.time() - began_s)
            self._rest = loop.call_later(rest_s, self._listen)

    def _read_datagrams(self) -> bool:
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                data, source = self._socket.recvfrom(_DATAGRAM.size + 1)
            except BlockingIOError:
                return True
            except OSError:
                continue  # of a datagram that did not arrive: the error queue has it
            self._receive(data, source)
        return False

    def _receive(self, data: bytes, source: tuple[str, int]) -> None:
        """Answer a question for this node, or take an answer; anything else is dropped."""
        if len(data) != _DATAGRAM.size:
            return
        magic, kind, tag, nonce = _DATAGRAM.unpack(data)
        if magic != _MAGIC:
            return
        if kind == _ASK and tag == self._tag:
            # As it came: the source of a datagram over IPv6 has more than address and port.
            self._send_to(_DATAGRAM.pack(_MAGIC, _ANSWER, tag, nonce), source)
        elif kind == _ANSWER and (asker := self._askers.get(nonce)):
            asker.answered()

    def _send(self, data: bytes, target: Address) -> bool:
        host = ipaddress.ip_address(target[0])
        six = self._socket.family == socket.AF_INET6
        if host.version == 6 and not six:
            return False
        mapped = f"::ffff:{host}" if six and host.version == 4 else str(host)
        return self._send_to(data, (mapped, target[1]))

    def _send_to(self, data: bytes, target: tuple[str, int]) -> bool:
        # An error may be that of a datagram before, reported once; then this one was not sent yet.
        for _ in range(2):
            try:
                self._socket.sendto(data, target)
            except OSError as error:
                logger.debug("a datagram to %s was not sent: %s", target, error)
            else:
                return True
        return False

    def _read_errors(self) -> None:
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                data, controls, _, _ = self._socket.recvmsg(
                    _DATAGRAM.size, _ERROR_BYTES, socket.MSG_ERRQUEUE
                )
            except OSError:  # BlockingIOError: there are no more
                return
            if len(data) != _DATAGRAM.size:
                continue
            asker = self._askers.get(_DATAGRAM.unpack(data)[3])
            for _, kind, body in controls:
                if asker is not None and kind in (_IP_RECVERR, _IPV6_RECVERR):
                    asker.unreachable(by_network=_is_of_network(body))


async def resolve(address: str) -> Address | None:
    """Return the address in numbers; None when there is none, or the resolver does not answer."""
    if target := numeric(address):
        return target
    host, port = split_address(address)
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    except (OSError, ValueError) as error:
        logger.debug("peer address %s: %s", address, error)
        return None
    # Of both families the one that every socket reaches, also one that is bound to IPv4.
    chosen = next((one for one in found if one[0] == socket.AF_INET), found[0])
    return (str(chosen[4][0]), int(chosen[4][1]))


def numeric(address: str) -> Address | None:
    """Return an address that needs no resolver."""
    host, port = split_address(address)
    try:
        target = (str(ipaddress.ip_address(host)), int(port))
    except ValueError:
        return None
    return target if 0 < target[1] <= _PORT_MAX else None


async def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        # Of an IPv6 socket this is for the peers with an IPv4 address.
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _is_of_network(extended_error: bytes) -> bool:
    """Return whether an error comes by ICMP from elsewhere, not from this node's own kernel."""
    if len(extended_error) < _EXTENDED_ERROR.size:
        return False
    origin = _EXTENDED_ERROR.unpack_from(extended_error)[1]
    offender = _host_of(extended_error[_EXTENDED_ERROR.size :])
    return origin in _FROM_ICMP and offender is not None and not _is_ours(offender)


def _host_of(raw: bytes) -> str | None:
    """Return the host in a struct sockaddr."""
    family = int.from_bytes(raw[:2], sys.byteorder) if len(raw) >= 2 else 0
    if family == socket.AF_INET and len(raw) >= 8:
        return str(ipaddress.IPv4Address(raw[4:8]))
    if family == socket.AF_INET6 and len(raw) >= 24:
        six = ipaddress.IPv6Address(raw[8:24])
        return str(six.ipv4_mapped or six)
    return None


def _is_ours(host: str) -> bool:
    """Return whether an address is this node's: then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind((host, 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True
