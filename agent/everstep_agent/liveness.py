"""Peer liveness over UDP: answers other agents' probes, probes peers, and reports who is silent."""

import asyncio
import hashlib
import ipaddress
import logging
import secrets
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import cast

from everstep_agent.concurrency.common_tick import tick
from everstep_agent.ipc.listeners import cannot_listen
from everstep_agent.suspicion import Suspicion
from everstep_common.clock import boot_ns
from everstep_common.orders import ConfirmPeer, PeerList
from everstep_common.reports import PeerReport, PeerVerdict
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from everstep_proto.tls import split_address

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
# When the controller asks whether a peer is alive: three probes within a second, with time left for
# the answer to the last.
_CONFIRM_PROBES = 3
_CONFIRM_GAP_S = 0.3
_CONFIRM_S = 1.0
# A datagram: magic and version, kind, first bytes of the SHA-256 of the asked node's name, nonce.
_DATAGRAM = struct.Struct("!4s4s8s8s")
_MAGIC = b"ESP1"
_ASK, _ANSWER = b"ask\0", b"answ"
_RESOLVE_TIMEOUT_S = 5.0

Say = Callable[[fleet_pb2.AgentMessage], None]
_Address = tuple[str, int]


def name_tag(node: str) -> bytes:
    """Return what stands for a node in a datagram: an address that changed hands stays silent."""
    return hashlib.sha256(node.encode()).digest()[:8]


@dataclass(frozen=True, slots=True)
class _Question:
    peer: str
    answered: asyncio.Event


class Liveness(asyncio.DatagramProtocol):
    """One UDP socket that answers and asks. An answer is as long as its question, never longer."""

    def __init__(self, node: str, say: Say) -> None:
        self._tag = name_tag(node)
        self._say = say
        self._suspicion = Suspicion(int(INTERVAL_S * 1e9))
        self._transport: asyncio.DatagramTransport | None = None
        self._addresses: dict[str, str] = {}
        # Those of them that are numbers, which need no resolver and no task.
        self._targets: dict[str, _Address] = {}
        self._round: list[bytes] = []
        self._questions: dict[bytes, _Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Open the socket; return its port. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(lambda: self, (host, port))
        except OSError as error:
            raise cannot_listen("liveness_address", f"{host}:{port}", error) from error
        return int(transport.get_extra_info("sockname")[1])

    async def run(self) -> None:
        """Probe the peers once a second until cancelled."""
        try:
            while True:
                # Slept first, so that there is a whole interval between two rounds of probes.
                await tick(INTERVAL_S)
                self._report(self._suspicion.tick(boot_ns()))
                self._ask_all()
        finally:
            if self._transport is not None:
                self._transport.close()

    # --- what the controller says ----------------------------------------------------------------

    def watch(self, peers: PeerList) -> None:
        """See Peers."""
        self._addresses = {peer.node: peer.liveness_address for peer in peers.peers}
        numbers = ((peer, _numeric(address)) for peer, address in self._addresses.items())
        self._targets = {peer: target for peer, target in numbers if target is not None}
        self._suspicion.watch(self._addresses, boot_ns())

    def confirm(self, question: ConfirmPeer) -> None:
        """See Peers."""
        self._spawn(self._confirm(question))

    def tell_again(self) -> None:
        """See Peers."""
        self._report(self._suspicion.silent(boot_ns()))

    # --- asyncio.DatagramProtocol ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        # Not every version's transport of a datagram socket derives from DatagramTransport.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: _Address) -> None:
        """Answer a question for this node, or take an answer; anything else is dropped."""
        if len(data) != _DATAGRAM.size or self._transport is None:
            return
        magic, kind, tag, nonce = _DATAGRAM.unpack(data)
        if magic != _MAGIC:
            return
        if kind == _ASK and tag == self._tag:
            self._transport.sendto(_DATAGRAM.pack(_MAGIC, _ANSWER, tag, nonce), addr)
        elif kind == _ANSWER and (question := self._questions.get(nonce)):
            question.answered.set()
            self._report(self._suspicion.heard(question.peer, boot_ns()))

    def error_received(self, exc: Exception) -> None:
        """Take no notice: a port that nobody listens on is silence, and silence is counted."""

    # --- asking ----------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        """Send every peer a probe; answers to those of the last round come too late."""
        for nonce in self._round:
            del self._questions[nonce]
        self._round.clear()
        for peer, address in self._addresses.items():
            question = _Question(peer, asyncio.Event())
            if target := self._targets.get(peer):
                self._round.append(self._send(question, target))
            else:
                self._spawn(self._ask(question, address))

    def _send(self, question: _Question, target: _Address) -> bytes:
        """Send one probe; return the nonce under which its answer is awaited."""
        nonce = secrets.token_bytes(8)
        self._questions[nonce] = question
        if self._transport is not None:
            datagram = _DATAGRAM.pack(_MAGIC, _ASK, name_tag(question.peer), nonce)
            self._transport.sendto(datagram, target)
        return nonce

    async def _ask(self, question: _Question, address: str) -> None:
        """Send one probe and wait for its answer as long as the next one is not due."""
        target = await _resolve(address)
        if target is None:
            return
        nonce = self._send(question, target)
        try:
            async with asyncio.timeout(INTERVAL_S):
                await question.answered.wait()
        except TimeoutError:
            pass
        finally:
            del self._questions[nonce]

    async def _confirm(self, confirm: ConfirmPeer) -> None:
        answered = asyncio.Event()
        for _ in range(_CONFIRM_PROBES):
            question = _Question(confirm.peer.node, answered)
            self._spawn(self._ask(question, confirm.peer.liveness_address))
            await asyncio.sleep(0 if answered.is_set() else _CONFIRM_GAP_S)
        left_s = _CONFIRM_S - _CONFIRM_PROBES * _CONFIRM_GAP_S
        try:
            async with asyncio.timeout(left_s):
                await answered.wait()
        except TimeoutError:
            pass
        verdict = PeerVerdict(confirm.confirm_id, confirm.peer.node, alive=answered.is_set())
        logger.info("peer %s: asked thrice, alive=%s", verdict.peer, verdict.alive)
        self._say(fleet_pb2.AgentMessage(verdict=to_wire(verdict, fleet_pb2.PeerVerdict)))

    def _report(self, changes: list[PeerReport]) -> None:
        for change in changes:
            logger.info("peer %s is %s", change.peer, "silent" if change.silent else "heard again")
            self._say(fleet_pb2.AgentMessage(peer=to_wire(change, fleet_pb2.PeerReport)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _numeric(address: str) -> _Address | None:
    host, port = split_address(address)
    try:
        return (str(ipaddress.ip_address(host)), int(port))
    except ValueError:
        return None


async def _resolve(address: str) -> _Address | None:
    if target := _numeric(address):
        return target
    host, port = split_address(address)
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, int(port), type=2)
    except (OSError, ValueError) as error:
        logger.debug("peer address %s: %s", address, error)
        return None
    return (str(found[0][4][0]), int(found[0][4][1]))
