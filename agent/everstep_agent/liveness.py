"""Peer liveness: asks peers over UDP every second, and reports who is silent."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace

from everstep_agent.concurrency.common_tick import tick
from everstep_agent.peer_confirmation import Confirmation
from everstep_agent.peer_socket import Address, PeerSocket, numeric, resolve
from everstep_agent.suspicion import Suspicion
from everstep_common.clock import boot_ns
from everstep_common.orders import ConfirmPeer, PeerList
from everstep_common.reports import PeerEvidence, PeerReport, TcpAnswer
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
# An answer is missed that has not come by then. Late ones count as well; but a third miss is told
# half a second earlier, so that a node is judged within five seconds.
_ANSWER_S = 0.5
# So long the network's word that a peer cannot be reached holds, unless the peer is heard: a router
# may say nothing more to one who asks every second.
_NETWORKS_WORD_NS = 60_000_000_000

Say = Callable[[fleet_pb2.AgentMessage], None]


class _Probe:
    """Asker of one probe of a watched peer."""

    def __init__(
        self, peer: str, heard: Callable[[str], None], network_said: Callable[[str], None]
    ) -> None:
        self._peer = peer
        self._heard = heard
        self._network_said = network_said

    def answered(self) -> None:
        """See Asker."""
        self._heard(self._peer)

    def unreachable(self, *, by_network: bool) -> None:
        """Keep the network's word for who asks; the agent there is as silent, which is counted."""
        if by_network:
            self._network_said(self._peer)


class Liveness:
    """Watcher of a few peers; it asks about others when the controller wants to know."""

    def __init__(self, node: str, say: Say) -> None:
        self._node = node
        self._say = say
        self._suspicion = Suspicion(int(INTERVAL_S * 1e9))
        self._socket: PeerSocket | None = None
        self._addresses: dict[str, str] = {}
        # Those of them that are numbers, which need no resolver and no task.
        self._targets: dict[str, Address] = {}
        self._round: list[bytes] = []
        # When the network said last that a probe could not reach a watched peer.
        self._unreachable_ns: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hears_nobody(self) -> bool:
        """Return whether there are peers, and none is heard."""
        return self._suspicion.hears_nobody()

    async def open(self, host: str, port: int) -> int:
        """Open the socket; return its port. Raises OSError."""
        self._socket = await PeerSocket.open(self._node, host, port)
        return self._socket.port

    async def run(self, on_nobody_heard: Callable[[], None] = lambda: None) -> None:
        """Probe the peers once a second until cancelled; call back each time that none is heard."""
        peers = self._socket
        assert peers is not None, "it runs on the socket that open() makes"
        try:
            while True:
                # Slept first, so that there is a whole interval between two rounds of probes.
                await tick(INTERVAL_S)
                self._ask_all(peers)
                await asyncio.sleep(_ANSWER_S)
                # Answers that came while this loop was late are taken before any is missed.
                peers.drain()
                self._report(self._suspicion.tick(boot_ns()))
                if self.hears_nobody():
                    on_nobody_heard()
        except asyncio.CancelledError:
            # Not after a failure: then it runs again, on the same port.
            peers.close()
            raise

    # --- what the controller says ----------------------------------------------------------------

    def watch(self, peers: PeerList) -> None:
        """See Peers."""
        self._addresses = {peer.node: peer.liveness_address for peer in peers.peers}
        numbers = ((peer, numeric(address)) for peer, address in self._addresses.items())
        self._targets = {peer: target for peer, target in numbers if target is not None}
        self._suspicion.watch(self._addresses, boot_ns())
        self._unreachable_ns = {
            peer: at_ns for peer, at_ns in self._unreachable_ns.items() if peer in self._addresses
        }

    def confirm(self, question: ConfirmPeer) -> None:
        """See Peers."""
        if self._socket is not None:
            self._spawn(self._confirm(question, self._socket))

    def tell_again(self) -> None:
        """See Peers."""
        self._report(self._suspicion.silent(boot_ns()))

    # --- asking ----------------------------------------------------------------------------------

    def _ask_all(self, peers: PeerSocket) -> None:
        """Send every peer a probe; answers to those of the last round come too late."""
        for nonce in self._round:
            peers.forget(nonce)
        self._round.clear()
        for peer, address in self._addresses.items():
            if target := self._targets.get(peer):
                self._ask(peers, peer, target)
            else:
                self._spawn(self._ask_by_name(peers, peer, address))

    def _ask(self, peers: PeerSocket, peer: str, target: Address) -> None:
        self._round.append(
            peers.ask(peer, target, _Probe(peer, self._heard, self._note_unreachable)).nonce
        )

    async def _ask_by_name(self, peers: PeerSocket, peer: str, address: str) -> None:
        target = await resolve(address)
        if target is not None:
            self._ask(peers, peer, target)

    async def _confirm(self, question: ConfirmPeer, peers: PeerSocket) -> None:
        evidence = await Confirmation(question, peers).run()
        if evidence is None:
            logger.warning("peer %s: could not be asked from here", question.peer.node)
            return
        evidence = self._with_the_networks_word(evidence)
        logger.info(
            "peer %s: asked thrice, udp=%s tcp=%s",
            evidence.peer,
            evidence.udp,
            evidence.tcp.value,
        )
        self._say(fleet_pb2.AgentMessage(evidence=to_wire(evidence, fleet_pb2.PeerEvidence)))

    def _with_the_networks_word(self, evidence: PeerEvidence) -> PeerEvidence:
        """Return what a peer answers, with what the network said of this node's own probes.

        Routers say so seldom, and the probes of one who watches the peer have used that up.
        """
        said_ns = self._unreachable_ns.get(evidence.peer)
        recent = said_ns is not None and boot_ns() - said_ns < _NETWORKS_WORD_NS
        if recent and evidence.tcp is TcpAnswer.SILENT:
            return replace(evidence, tcp=TcpAnswer.UNREACHABLE)
        return evidence

    def _note_unreachable(self, peer: str) -> None:
        self._unreachable_ns[peer] = boot_ns()

    def _heard(self, peer: str) -> None:
        self._unreachable_ns.pop(peer, None)
        self._report(self._suspicion.heard(peer, boot_ns()))

    def _report(self, changes: list[PeerReport]) -> None:
        for change in changes:
            logger.info("peer %s is %s", change.peer, "silent" if change.silent else "heard again")
            self._say(fleet_pb2.AgentMessage(peer=to_wire(change, fleet_pb2.PeerReport)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
