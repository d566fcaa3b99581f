"""Simulated nodes and their streams to the controller, with everything that may break them."""

from collections.abc import Callable
from functools import partial

from everstep_controller.core import events
from everstep_controller.core.model.node import Origin
from everstep_sim.controller import SimulatedController
from everstep_sim.node import SimulatedNode
from everstep_sim.timeline import VirtualTime

JOB = "train"
# A neighbour is reported silent after three missed probes at 1 Hz.
SILENT_AFTER_S = 3.0


class SimulatedFleet:
    """Delivers what nodes say: records at least once and in order, the rest as it is."""

    def __init__(
        self, names: list[str], time: VirtualTime, controller: SimulatedController
    ) -> None:
        self.nodes = {name: SimulatedNode(name) for name in names}
        self._time = time
        self._controller = controller
        self._reported: Callable[[SimulatedNode], None] = lambda node: None
        self._opened: Callable[[SimulatedNode], None] = lambda node: None
        self._rejoin: Callable[[SimulatedNode], None] = lambda node: None

    def on_vault(
        self, opened: Callable[[SimulatedNode], None], report: Callable[[SimulatedNode], None]
    ) -> None:
        """Have something done when a stream opens, and when a node tells what it holds."""
        self._opened, self._reported = opened, report

    def submit(self, event: events.Event) -> bool:
        """Hand an event to the controller; False when it is away."""
        return self._controller.submit(event, self._time.now_ns)

    def connect(self, node: SimulatedNode) -> None:
        """Open a node's stream, if both ends are there."""
        if self.silent(node.name) or node.connected or not self._controller.up:
            return
        node.connected, node.streams = True, node.streams + 1
        self._opened(node)
        self.submit(node.hello(JOB))
        if self._controller.up:
            node.highest_term = max(node.highest_term, self._controller.core.state.term)
        if self._controller.core.state.halted:
            # The shell turns agents away until the controller knows what it may do.
            node.connected = False
            self._time.soon(1, 5, partial(self.connect, node))
            return
        self.report(node)
        taken = self._controller.core.state.outboxes.get(node.outbox_id, 0)
        if taken < node.acknowledged and node.launcher:
            # The journal has forgotten what it once acknowledged: say it again.
            self._rejoin(node)
        self._drain(node)

    def on_amnesia(self, then: Callable[[SimulatedNode], None]) -> None:
        """Have something done for a node whose acknowledged records were forgotten."""
        self._rejoin = then

    def stream_ends(self, node: SimulatedNode, least_s: float, most_s: float) -> None:
        """Have the controller notice the end of a stream, unless a new one is open by then."""
        stream = node.streams

        def noticed() -> None:
            if node.streams == stream:
                self.submit(events.NodeDisconnected(node.name))

        self._time.soon(least_s, most_s, noticed)

    def kill_agent(self, name: str) -> None:
        """Kill a node's agent, nothing else."""
        node = self.nodes[name]
        was_connected = node.connected
        node.lose_agent()
        if was_connected:
            self.stream_ends(node, 0.01, 0.1)

    def record(self, node: SimulatedNode, make: Callable[[Origin], events.Event]) -> None:
        """Put something into a node's outbox."""
        node.unacknowledged.append(make(node.origin()))
        self._drain(node)

    def _drain(self, node: SimulatedNode) -> None:
        while node.connected and node.unacknowledged and self._controller.up:
            acknowledged = self.submit(node.unacknowledged[0])
            if acknowledged or self._time.rng.random() < 0.5:
                # A controller that dies before it acknowledges sees the record again.
                done = node.unacknowledged.pop(0)
                # Progress that a controller has forgotten is told by the next progress.
                if isinstance(done, events.Reported):
                    node.acknowledged = done.origin.sequence

    def report(self, node: SimulatedNode) -> None:
        """Tell the controller which copies a node holds."""
        self._reported(node)

    def watch(self) -> None:
        """Let every node look at its two neighbours, as the UDP probes do; once a second."""
        names = list(self.nodes)
        for index, name in enumerate(names):
            for peer in (names[index - 1], names[(index + 1) % len(names)]):
                if self.nodes[name].connected and self.silent(peer):
                    self._time.after(SILENT_AFTER_S, partial(self._report_silence, name, peer))
        self._time.after(1, self.watch)

    def silent(self, name: str) -> bool:
        """Return whether a node answers nobody."""
        node = self.nodes[name]
        return not node.alive or not node.agent or node.cut_off

    def _report_silence(self, name: str, peer: str) -> None:
        known = peer in self._controller.core.state.nodes
        if self.nodes[name].connected and known and self.silent(peer):
            self.submit(events.PeerReported(name, peer, True))
