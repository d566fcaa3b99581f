"""Peer confirmation: what of a peer answers, asked at once by UDP and at its bulk port.

Thrice within a second, so that one lost datagram or SYN decides nothing. A connect to the port is
never finished: the kernel's answer to the SYN is all that is wanted. So it takes no place in the
peer's backlog, which a hung agent does not empty, and its agent sees no connection to be counted
against its limits.
"""

import asyncio
import errno
import logging
import socket
import struct
from contextlib import suppress

from everstep_agent.peer_socket import Address, PeerSocket, resolve
from everstep_common.clock import boot_ns
from everstep_common.orders import ConfirmPeer
from everstep_common.reports import PeerEvidence, TcpAnswer

logger = logging.getLogger(__name__)

# When it is asked again, or given up, in seconds after the time before. A node that answers nothing
# is reported by its third second, so a second of asking makes the verdict by its fifth.
_WAITS_S = (0.3, 0.3, 0.4)
# Turns of the event loop after which what lay in the sockets has been taken.
_TURNS = 3
_REFUSED = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
# Closing sends RST.
_NO_LINGER = struct.pack("ii", 1, 0)


class Confirmation:
    """One question of the controller about one peer; the Asker of its own datagrams."""

    def __init__(self, question: ConfirmPeer, peers: PeerSocket) -> None:
        self._question = question
        self._peers = peers
        self._nonces: list[bytes] = []
        self._sent = self._udp = False
        self._connects: set[asyncio.Task[None]] = set()
        self._answers: list[TcpAnswer] = []
        # Who said that a datagram could not reach the peer.
        self._network_said = self._own_kernel_said = False
        self._done = asyncio.Event()
        self._late_ns = 0

    # --- Asker -----------------------------------------------------------------------------------

    def answered(self) -> None:
        """See Asker."""
        self._udp = True
        self._settle()

    def unreachable(self, *, by_network: bool) -> None:
        """See Asker."""
        if by_network:
            self._network_said = True
        else:
            self._own_kernel_said = True

    # ---------------------------------------------------------------------------------------------

    async def run(self) -> PeerEvidence | None:
        """Ask, and return what answered; None when this node could not ask at all."""
        question = self._question
        try:
            async with asyncio.timeout(sum(_WAITS_S)):
                udp = await resolve(question.peer.liveness_address)
                tcp = await resolve(question.bulk_address) if question.bulk_address else None
        except TimeoutError:
            return None
        try:
            await self._ask_thrice(udp, tcp)
        finally:
            for connect in self._connects:
                connect.cancel()
            for nonce in self._nonces:
                self._peers.forget(nonce)
        answer = self._tcp_answer()
        if not self._sent and answer is TcpAnswer.NOT_ASKED:
            return None
        peer = question.peer.node
        return PeerEvidence(question.confirm_id, peer, self._udp, answer, self._late_ns)

    async def _ask_thrice(self, udp: Address | None, tcp: Address | None) -> None:
        for wait_s in _WAITS_S:
            # First: routers say how few times a second that something is unreachable, and it is the
            # port that must not be taken for silent by that.
            if tcp is not None and not self._kernel_answered():
                self._connects.add(asyncio.create_task(self._connect(tcp)))
                await asyncio.sleep(0)
            if udp is not None and not self._udp:
                asked = self._peers.ask(self._question.peer.node, udp, self)
                self._nonces.append(asked.nonce)
                self._sent |= asked.sent
            await self._wait(wait_s)
        # What lies in the sockets when a turn was late had come in time.
        self._peers.drain()
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _wait(self, wait_s: float) -> None:
        """Wait until all has answered, and count how much later than agreed this loop is."""
        began_ns = boot_ns()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._done.wait()
        self._late_ns += max(0, boot_ns() - began_ns - round(wait_s * 1e9))

    async def _connect(self, target: Address) -> None:
        self._answers.append(await connect_answer(target))
        self._settle()

    def _settle(self) -> None:
        if self._udp and (self._kernel_answered() or not self._question.bulk_address):
            self._done.set()

    def _kernel_answered(self) -> bool:
        return TcpAnswer.ACCEPTED in self._answers or TcpAnswer.REFUSED in self._answers

    def _tcp_answer(self) -> TcpAnswer:
        """Return the best of what the attempts came to."""
        for answer in (TcpAnswer.ACCEPTED, TcpAnswer.REFUSED):
            if answer in self._answers:
                return answer
        if TcpAnswer.UNREACHABLE in self._answers:
            own = self._own_kernel_said and not self._network_said
            return TcpAnswer.SILENT if own else TcpAnswer.UNREACHABLE
        asked = len(self._connects) - self._answers.count(TcpAnswer.NOT_ASKED)
        return TcpAnswer.SILENT if asked else TcpAnswer.NOT_ASKED


async def connect_answer(target: Address) -> TcpAnswer:
    """Return what a port answers to a SYN; waits until cancelled while nothing comes."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except (
        OSError
    ) as error:  # out of descriptors: that is this node's fault, not the peer's silence
        logger.warning("%s: cannot be asked: %s", target[0], error)
        return TcpAnswer.NOT_ASKED
    with sock:
        # The kernel then does not send the last packet of the handshake at once; RST goes instead.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        code = sock.connect_ex(target)
        if code == errno.EINPROGRESS:
            return _answer_of(await _result(sock))
        # Refused at once only by this machine itself; every other error at once is of its own.
        return _answer_of(code) if code in (0, *_REFUSED) else TcpAnswer.NOT_ASKED


def _answer_of(code: int) -> TcpAnswer:
    if code == 0:
        return TcpAnswer.ACCEPTED
    if code in _REFUSED:
        return TcpAnswer.REFUSED
    return TcpAnswer.UNREACHABLE if code in _UNREACHABLE else TcpAnswer.SILENT


async def _result(sock: socket.socket) -> int:
    """Wait for the end of a connect; return its error, 0 for none."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock.fileno(), _end, ended)
    try:
        await ended
    finally:
        loop.remove_writer(sock.fileno())
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
