"""Simulated nodes and their streams to the controller, with everything that may break them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

from everstep_common import reports
from everstep_common.judging.findings import Finding
from everstep_common.reports import TcpAnswer
from everstep_controller.api.fleet.agent_streams import RENEWED_S
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import Origin
from everstep_controller.core.nodes import agent_identity, quorum
from everstep_controller.core.nodes.agent_identity import HelloDecision
from everstep_sim.clocks import MachineClock
from everstep_sim.controller import SimulatedController, Taken
from everstep_sim.network import CONTROLLER, Network, Transport
from everstep_sim.node import SimulatedNode
from everstep_sim.outbox import OutboxRecord
from everstep_sim.timeline import SECOND, VirtualTime

JOB = "train"
# Until a closed stream, or one on which nothing comes through, is opened anew.
RECONNECT_S = (0.1, 5.0)


# How long one waits that is refused, and one that asks for a name which another agent has.
REFUSED_S = (3.0, 12.0)
# How soon a stream is opened anew because Hello would say something else.
_RENEW_S = 0.02
# How soon it is looked again whether a controller that stands still reads its sockets.
_SOCKET_NS = SECOND // 2
_ANSWERED_S = agent_identity.ANSWER_NS / SECOND + 0.1


class NameHolder(Protocol):
    """Agent that has the name of a node and is not its own."""

    def answers(self) -> bool:
        """Return whether it answers when it is asked on its stream."""
        ...


class Nodes(dict[str, SimulatedNode]):
    """All nodes by their names; ``nodes[name]`` also finds one that had the name before."""

    def __init__(self, nodes: Mapping[str, SimulatedNode]) -> None:
        super().__init__(nodes)
        self._former: dict[str, SimulatedNode] = {}

    def __missing__(self, name: str) -> SimulatedNode:
        """Return the node that had a name before."""
        return self._former[name]

    def rename(self, name: str, to: str) -> SimulatedNode:
        """Give a node another name."""
        node = self.pop(name)
        node.rename(to)
        self._former[name] = self[to] = node
        return node

    def at(self, name: str) -> SimulatedNode | None:
        """Return the node at an address that was told under a name, now or before."""
        return self.get(name) or self._former.get(name)


class SimulatedFleet:
    """Delivers what nodes say: records at least once and in order, the rest as it is."""

    def __init__(
        self, names: list[str], time: VirtualTime, controller: SimulatedController, domains: int = 0
    ) -> None:
        self.nodes = Nodes({name: SimulatedNode(name, MachineClock(name)) for name in names})
        for index, node in enumerate(self.nodes.values() if domains else ()):
            node.domain = f"rack-{index % domains}"
        self.network = Network()
        # When somebody who could tell the controller of it heard each node last.
        self.reached_ns: dict[str, int] = {}
        self._time = time
        self._controller = controller
        self._reported: Callable[[SimulatedNode], None] = lambda node: None
        self._opened: Callable[[SimulatedNode], None] = lambda node: None
        self._shifted: Callable[[int], None] = lambda forward_ns: None
        # Agents that have the name of a node and are not its own.
        self._holders: dict[str, NameHolder] = {}
        self._rejoin: Callable[[SimulatedNode], None] = lambda node: None

    def on_vault(
        self, opened: Callable[[SimulatedNode], None], report: Callable[[SimulatedNode], None]
    ) -> None:
        """Have something done when a stream opens, and when a node tells what it holds."""
        self._opened, self._reported = opened, report

    def on_amnesia(self, then: Callable[[SimulatedNode], None]) -> None:
        """Have something done for a node whose acknowledged records were forgotten."""
        self._rejoin = then

    def on_shift(self, then: Callable[[int], None]) -> None:
        """Have something done when a node's clocks have moved the controller's timeline forward."""
        self._shifted = then

    def submit(self, event: events.Event) -> bool:
        """Hand an event to the controller; False when it is away, or stands still."""
        return self._controller.submit(event)

    def post(self, event: events.Event) -> None:
        """Hand over an event that nobody tells again, as the controller's shell itself does."""
        self._controller.post(event)

    # --- what works ------------------------------------------------------------------------------

    def runs(self, node: SimulatedNode) -> bool:
        """Return whether a machine has power and is not frozen."""
        return node.alive and node.frozen_until_ns <= self._time.now_ns

    def agent_runs(self, node: SimulatedNode) -> bool:
        """Return whether the loop of a node's agent goes round."""
        return self.runs(node) and node.agent and node.paused_until_ns <= self._time.now_ns

    def silent(self, name: str) -> bool:
        """Return whether a node answers nobody, as a stranger does not that has become one."""
        node = self.nodes.get(name)
        return node is None or not self.agent_runs(node) or node.cut_off

    def flows(self, node: SimulatedNode) -> bool:
        """Return whether what a node says on its stream reaches the controller, and back."""
        if not node.connected or not self._controller.listens:
            return False
        return self.agent_runs(node) and not node.cut_off and self._linked(node.name)

    def hears(self, watcher: str, peer: str) -> bool:
        """Return whether a peer answers a probe of a node."""
        network = self.network
        if self.silent(watcher) or self.silent(peer):
            return False
        lost = network.udp_loss and self._time.rng.random() > (1 - network.udp_loss) ** 2
        return not lost and network.joins(Transport.UDP, watcher, peer)

    def connect_answer(self, asker: str, peer: str) -> TcpAnswer:
        """Return what comes of a connect to a peer's bulk port."""
        node = self.nodes.at(peer)
        share = self.network.says_unreachable.get(peer)
        if share is not None:
            told = self._time.rng.random() < share
            return TcpAnswer.UNREACHABLE if told else TcpAnswer.SILENT
        joined = self.network.joins(Transport.TCP, asker, peer) and not self.nodes[asker].cut_off
        if node is None or not joined or node.cut_off or not self.runs(node):
            return TcpAnswer.SILENT
        return TcpAnswer.ACCEPTED if node.agent else TcpAnswer.REFUSED

    def _linked(self, name: str) -> bool:
        return self.network.joins(Transport.STREAM, name, CONTROLLER)

    # --- streams ---------------------------------------------------------------------------------

    def connect(self, node: SimulatedNode) -> None:
        """Open a node's stream, if both ends are there."""
        if self.silent(node.name) or node.connected or not self._controller.up:
            return
        if not self._controller.listens or not self._linked(node.name):
            self._connect_later(node)
            return
        hello = node.hello()
        if self._turns_away(hello):
            self.say_hello(hello)
            waits = self.contends(hello)
            self._connect_later(node, *((_ANSWERED_S, _ANSWERED_S) if waits else REFUSED_S))
            return
        if not self._open(node, hello):
            return
        if self._controller.up:
            self._welcome(node)
        self.report(node)
        if self._controller.core.state.halted:
            return
        self.heard(node.name)
        taken = self._controller.core.state.outboxes.get(node.outbox_id, 0)
        if taken < node.outbox.acknowledged:
            # The journal has forgotten what it once acknowledged: say it again.
            self._rejoin(node)
        self._drain(node)

    def _welcome(self, node: SimulatedNode) -> None:
        state = self._controller.core.state
        node.highest_term = max(node.highest_term, state.term)
        node.told_halted = bool(state.halted)
        if not state.halted:
            node.cluster_id = node.cluster_id or state.cluster_id

    def tell_halt(self) -> None:
        """Have every agent know that the controller acts on nothing from now on."""
        for node in self.nodes.values():
            self.deliver(node, partial(self._hear_halt, node, node.streams))

    def _hear_halt(self, node: SimulatedNode, stream: int) -> None:
        if node.connected and node.streams == stream:
            node.told_halted = True

    def _open(self, node: SimulatedNode, hello: events.NodeConnected) -> bool:
        """Open a stream; return whether its Hello could be journaled."""
        node.connected, node.streams = True, node.streams + 1
        node.inbox.clear()
        node.outbox.rewind()
        self._heard_clock(node)
        self._opened(node)
        if self.submit(hello) or not self._controller.full:
            return True
        self.end_stream(node.name)
        return False

    def _heard_clock(self, node: SimulatedNode) -> None:
        stamp = node.clock.stamp(self._time.now_ns)
        if forward_ns := self._controller.timeline.hear(node.name, stamp):
            self._shifted(forward_ns)

    def listens(self) -> bool:
        """Return whether anybody hears who knocks."""
        return self._controller.listens

    def say_hello(self, hello: events.NodeConnected) -> bool:
        """Say Hello at the door, as the shell has it; return whether it was taken."""
        state, now_ns = self._controller.core.state, self._controller.now_ns
        if not self._turns_away(hello):
            return self.submit(hello)
        found = agent_identity.judge_hello(state, hello, now_ns)
        if not agent_identity.is_repeated(state, hello, found, now_ns):
            self.submit(replace(hello, knocks=True))
        return False

    def contends(self, hello: events.NodeConnected) -> bool:
        """Return whether an agent waits for what the one says that has its name."""
        return agent_identity.contends(self._controller.core.state, hello)

    def _turns_away(self, hello: events.NodeConnected) -> bool:
        found = agent_identity.judge_hello(
            self._controller.core.state, hello, self._controller.now_ns
        ).decision
        return found in (HelloDecision.REFUSED, HelloDecision.CONTENDS)

    def agent_of(self, name: str) -> str:
        """Return the outbox of the agent that has a name."""
        node = self._controller.core.state.nodes.get(name)
        return node.spec.outbox if node is not None else ""

    def lose_name(self, name: str, to: "NameHolder") -> None:
        """Have another agent have the name of a node: the stream of its own agent ends."""
        self._holders[name] = to
        self.end_stream(name)

    def _connect_later(
        self, node: SimulatedNode, least_s: float = RECONNECT_S[0], most_s: float = RECONNECT_S[1]
    ) -> None:
        def again() -> None:
            node.knocks = False
            self.connect(node)

        if not node.knocks:
            node.knocks = True
            self._time.soon(least_s, most_s, again)

    def stream_ends(self, node: SimulatedNode, least_s: float, most_s: float) -> None:
        """Have the controller notice the end of a stream, unless a new one is open by then."""
        stream, name = node.streams, node.name

        def noticed() -> None:
            if node.streams == stream:
                node.lag.ended = stream
                self.post(events.NodeDisconnected(name))

        # What was on its way comes before the end.
        ends_ns = self._time.now_ns + int(self._time.rng.uniform(least_s, most_s) * SECOND)
        self._time.at(max(ends_ns, node.lag.up_ns), noticed)

    def stream_stalls(self, node: SimulatedNode, least_s: float, most_s: float) -> None:
        """Have both ends give a stream up on which nothing comes through, if it is still so."""
        stream, name = node.streams, node.name

        def given_up() -> None:
            if node.streams == stream and node.connected and not self.flows(node):
                node.connected, node.lag.ended = False, stream
                self.post(events.NodeDisconnected(name))
                self._connect_later(node)

        self._time.soon(least_s, most_s, given_up)

    def end_stream(self, name: str) -> None:
        """End the stream of a node that the controller gave up; its agent knocks when it runs."""
        node = self.nodes.get(name)
        if node is not None and node.connected:
            node.connected, node.lag.ended = False, node.streams
            self._connect_later(node)

    def renew_stream(self, name: str) -> None:
        """End a node's stream for a new Hello; that is no silence unless none comes."""
        node = self.nodes.get(name)
        if node is None or not node.connected:
            return
        stream = node.streams
        self.end_stream(name)

        def given_up() -> None:
            if node.streams == stream:
                self.post(events.NodeDisconnected(name))

        self._time.after(RENEWED_S, given_up)

    def renew(self, node: SimulatedNode) -> None:
        """Have an agent say Hello anew to a controller that acts on nothing, and only listens."""
        if node.connected and node.told_halted:
            node.connected = False
            self._time.after(_RENEW_S, partial(self.connect, node))

    def deliver(self, node: SimulatedNode, then: Callable[[], object]) -> None:
        """Have something that was sent on a node's stream arrive, in its turn, when it flows."""
        now_ns, stream, lag = self._time.now_ns, node.streams, node.lag
        if not node.connected:
            return
        if lag.by_ns or lag.down_ns >= now_ns:
            lag.down_ns = max(lag.down_ns, now_ns + lag.by_ns)
            arrive = partial(self.when_it_flows, node, then)
            self._time.at(lag.down_ns, partial(self._if_open, node, stream, arrive))
        else:
            self.when_it_flows(node, then)

    def _if_open(self, node: SimulatedNode, stream: int, then: Callable[[], object]) -> None:
        if node.streams == stream:
            then()

    def when_it_flows(self, node: SimulatedNode, then: Callable[[], object]) -> None:
        """Have something happen on a node's stream now, or when it flows again."""
        if self.flows(node):
            then()
        elif node.connected:
            node.inbox.append((node.streams, then))

    def say(self, node: SimulatedNode, then: Callable[[], object]) -> None:
        """Have something that a node says on its stream arrive at the controller, in its turn.

        Nothing of a stream arrives any more once its end is known, or a newer one is open.
        """
        now_ns, lag = self._time.now_ns, node.lag
        if not lag.by_ns and lag.up_ns < now_ns:
            then()
            return
        lag.up_ns = max(lag.up_ns, now_ns + lag.by_ns)
        arrive = partial(self._arrive_above, node, node.streams, self._controller.core, then)
        self._time.at(lag.up_ns, arrive)

    def _arrive_above(
        self, node: SimulatedNode, stream: int, core: Core, then: Callable[[], object]
    ) -> None:
        lost = node.cut_off or not self._linked(node.name) or not self._controller.up
        replaced = node.streams != stream or node.lag.ended >= stream
        if lost or replaced or self._controller.core is not core:
            return
        if self._controller.stalled:  # it waits in its sockets, and what comes later behind it
            node.lag.up_ns = max(node.lag.up_ns, self._time.now_ns + _SOCKET_NS)
            again = partial(self._arrive_above, node, stream, core, then)
            self._time.at(self._time.now_ns + _SOCKET_NS, again)
            return
        then()

    def resume(self, node: SimulatedNode) -> None:
        """Let what has waited on a node's stream come through, both ways."""
        if not self.flows(node):
            self.connect(node)
            return
        waiting, node.inbox = node.inbox, []
        for stream, then in waiting:
            if stream == node.streams and node.connected:
                then()
        self.report(node)
        self._drain(node)

    def resume_all(self) -> None:
        """Let whatever can come through again do so."""
        for node in self.nodes.values():
            self.resume(node)

    def kill_agent(self, name: str) -> None:
        """Kill a node's agent, nothing else."""
        node = self.nodes[name]
        was_connected = node.connected
        node.lose_agent()
        if was_connected:
            self.stream_ends(node, 0.01, 0.1)

    def record(self, node: SimulatedNode, make: Callable[[Origin], events.Event]) -> None:
        """Put something into a node's outbox."""
        node.outbox.add(node.name, make)
        self._drain(node)

    def _drain(self, node: SimulatedNode) -> None:
        # A halted controller takes and acknowledges nothing: it is said again when it acts again.
        while self.flows(node) and not self._controller.core.state.halted:
            record = node.outbox.next_unsent()
            if record is None:
                return
            self.say(node, partial(self._take, node, node.streams, record))

    def _take(self, node: SimulatedNode, stream: int, record: OutboxRecord) -> None:
        """Have the controller take a record, and acknowledge it when it is journaled."""
        if self._controller.core.state.halted:
            return
        taken = self._controller.take_record(node.outbox_id, record)
        # A controller that dies before it acknowledges sees the record again.
        if taken is Taken.YES or (taken is Taken.KILLED and self._time.rng.random() < 0.5):
            self._acknowledge(node, stream, record.sequence)
        elif taken is Taken.REFUSED and node.streams == stream:
            node.lag.ended = stream
            self.post(events.NodeDisconnected(node.name))
            self.end_stream(node.name)

    def _acknowledge(self, node: SimulatedNode, stream: int, sequence: int) -> None:
        outbox = node.outbox_id

        def acknowledged() -> None:
            if node.outbox_id == outbox:
                node.outbox.acknowledge(sequence)

        if node.connected and node.streams == stream:
            if self._controller.up:
                self.deliver(node, acknowledged)
            else:
                acknowledged()

    def find(self, node: SimulatedNode, finding: Finding) -> None:
        """Have the agent of a node that lives find something."""
        at_ns = self._time.now_ns
        if node.alive:
            node.findings[finding.key] = finding
            raised = reports.FindingRaised(finding)
            self.record(node, lambda origin: events.Reported(origin, at_ns, raised))

    def report(self, node: SimulatedNode) -> None:
        """Tell the controller which copies a node holds."""
        self._reported(node)

    # --- liveness --------------------------------------------------------------------------------

    def heard(self, name: str) -> None:
        """Take note that somebody who can tell the controller has heard a node."""
        self.reached_ns[name] = self._time.now_ns

    def heard_by(self, names: Iterable[str], at_ns: int) -> None:
        """Take note that the controller learns who was heard, and when."""
        for name in names:
            self.reached_ns[name] = max(at_ns, self.reached_ns.get(name, 0))

    def ping(self, action: actions.PingAgent) -> None:
        """Have the loop of an agent answer, when it goes round."""
        node, holder = self.nodes.get(action.node), self._holders.get(action.node)

        def answered() -> None:
            self.heard(action.node)
            self.submit(events.AgentAnswered(action.node, action.id))

        if node is not None and self.agent_of(node.name) == node.outbox_id:
            self.deliver(node, partial(self.say, node, answered))
        elif holder is not None and holder.answers() and self.listens():
            answered()

    def call_roll(self, action: actions.CallRoll) -> None:
        """Have all agents answer whose streams flow, and whose nodes are looked for."""
        answered = 0
        for name in quorum.listed(self._controller.core.state):
            node = self.nodes.get(name)
            if node is not None and self.flows(node) and self.agent_of(name) == node.outbox_id:
                self.heard(name)
                answered += 1
        self.post(events.RollCalled(action.id, answered))

    def confirm(self, action: actions.ConfirmSilence) -> None:
        """Have a node probe a peer three times and connect to it, and say what answered."""
        node = self.nodes.get(action.node)
        if node is not None:
            self.deliver(node, lambda: _Question(self, node, action).ask(self._time))


class _Question:
    """One node's answer to the question what of a peer answers."""

    def __init__(
        self, fleet: SimulatedFleet, node: SimulatedNode, action: actions.ConfirmSilence
    ) -> None:
        self._fleet = fleet
        self._node = node
        self._action = action
        self._udp = False
        self._tcp = TcpAnswer.SILENT if action.peer_bulk_address else TcpAnswer.NOT_ASKED
        # When the peer was heard last.
        self._heard_ns: int | None = None

    def ask(self, time: VirtualTime) -> None:
        """Probe now and twice again, and answer a second later."""
        due_ns = time.now_ns + SECOND
        for delay_s in (0.0, 0.3, 0.6):
            time.after(delay_s, partial(self._probe, time))
        time.after(1.0, lambda: self._answer(time, due_ns))

    def _probe(self, time: VirtualTime) -> None:
        here, there = self._node.name, self._action.peer
        heard = self._fleet.hears(here, there)
        self._udp = self._udp or heard
        if self._tcp is TcpAnswer.SILENT and self._fleet.agent_runs(self._node):
            self._tcp = self._fleet.connect_answer(here, there)
            heard = heard or self._tcp is not TcpAnswer.SILENT
        if heard:
            self._heard_ns = time.now_ns

    def _answer(self, time: VirtualTime, due_ns: int) -> None:
        def say() -> None:
            self._fleet.say(self._node, partial(self._tell, time.now_ns - due_ns))

        self._fleet.when_it_flows(self._node, say)

    def _tell(self, late_ns: int) -> None:
        if self._heard_ns is not None:
            self._fleet.heard_by([self._action.peer], self._heard_ns)
        word = events.PeerJudged(
            self._node.name,
            self._action.peer,
            self._action.id,
            udp=self._udp,
            tcp=self._tcp,
            late_ns=late_ns,
        )
        self._fleet.submit(word)
