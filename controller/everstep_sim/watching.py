"""Simulated watching: nodes probe the peers that they were told to, once a second."""

from collections.abc import Mapping
from functools import partial

from everstep_controller.core import events
from everstep_controller.core.nodes.watchers import watched_peers
from everstep_sim.controller import SimulatedController
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.node import MISSES, SimulatedNode
from everstep_sim.timeline import SECOND, VirtualTime

# An answer that has not come by then is missed.
_ANSWER_S = 0.5


class Watching:
    """The probes of all nodes; what each says of its peers, and says again on a new stream."""

    def __init__(
        self, fleet: SimulatedFleet, time: VirtualTime, controller: SimulatedController
    ) -> None:
        self._fleet = fleet
        self._time = time
        self._controller = controller
        self._present: list[str] = []
        self._peers: Mapping[str, tuple[str, ...]] = {}
        self._told: dict[str, tuple[int, set[str]]] = {}

    def tick(self) -> None:
        """Let every node probe its peers once, and again in a second."""
        self._assign()
        for name, peers in self._peers.items():
            node = self._fleet.nodes.get(name)
            if node is None:
                continue  # a stranger that has become one
            if self._fleet.agent_runs(node):
                self._probe(node, peers)
            else:
                node.missed.clear()  # one that stood still itself suspects nobody
        self._time.after(1, self.tick)

    def _assign(self) -> None:
        """Have nodes watch whom the controller names, as far as they are connected."""
        known = self._controller.core.state.nodes if self._controller.listens else {}
        present = [name for name, node in known.items() if not node.gone]
        if known and present != self._present:
            self._present = present
            self._peers = watched_peers(
                present, {name: known[name].spec.domain for name in present}
            )

    def _probe(self, node: SimulatedNode, peers: tuple[str, ...]) -> None:
        node.missed = {peer: node.missed.get(peer, 0) for peer in peers}
        for peer in peers:
            heard = self._fleet.hears(node.name, peer)
            node.missed[peer] = 0 if heard else node.missed[peer] + 1
        self._time.after(_ANSWER_S, partial(self._tell, node))

    def _tell(self, node: SimulatedNode) -> None:
        """Say what has changed; all that is silent on a new stream."""
        if not self._fleet.flows(node):
            return
        stream, told = self._told.get(node.name, (0, set()))
        if stream != node.streams:
            told = set()
        told &= node.missed.keys()
        answered = [peer for peer, missed in node.missed.items() if not missed]
        heard_ns = self._time.now_ns
        self._fleet.say(node, partial(self._fleet.heard_by, answered, heard_ns))
        silent = {peer for peer, missed in node.missed.items() if missed >= MISSES}
        self._told[node.name] = (node.streams, silent)
        for peer in sorted(silent - told):
            silent_ns = int((node.missed[peer] + _ANSWER_S) * SECOND)
            self._say(node, events.PeerReported(node.name, peer, True, silent_ns))
        for peer in sorted(told - silent):
            self._say(node, events.PeerReported(node.name, peer, False))

    def _say(self, node: SimulatedNode, word: events.PeerReported) -> None:
        self._fleet.say(node, partial(self._fleet.submit, word))
