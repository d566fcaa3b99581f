"""A cluster in virtual time: nodes that train, die, fall silent and return around the real core.

Everything random comes from one seed, so the seed is the bug report.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_common.findings import Finding, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.catalogue import Copy
from everstep_controller.core.facts import Mode, Phase, Settings
from everstep_controller.core.state import JobRecord, JobState
from everstep_sim.controller import SimulatedController
from everstep_sim.node import SLOTS, SimulatedNode

SECOND = 1_000_000_000
JOB = "train"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is simulated."""

    nodes: int = 5
    nodes_min: int = 3
    nodes_max: int = 4
    steps: int = 40
    crash_chance: float = 0.0


@dataclass(slots=True)
class Training:
    """The ranks of one generation, which can only step together."""

    order: dict[str, actions.StartGeneration] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    step: int = -1
    stepping: bool = False


class Cluster:
    """The whole loop, driven by ``run``; faults are injected by calling the verbs of the class."""

    def __init__(
        self, seed: int, shape: Shape, invariants: "Callable[[Cluster, events.Event], None]"
    ) -> None:
        self.rng = random.Random(seed)
        self.shape = shape
        self.now_ns = 0
        self.nodes = {f"n{i}": SimulatedNode(f"n{i}") for i in range(shape.nodes)}
        self.trainings: dict[int, Training] = {}
        self.completed: dict[int, list[int]] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.invariants = invariants
        settings = Settings(mode=Mode.ENFORCE, forming_ns=5 * SECOND, probation_ns=20 * SECOND)
        self.controller = SimulatedController(
            settings,
            self.rng,
            self._dispatch,
            lambda core, event, now_ns: self.invariants(self, event),
            crash_chance=shape.crash_chance,
            crashed=lambda: self.after(self.rng.uniform(0.5, 3), self._start_controller),
        )

    # --- time ------------------------------------------------------------------------------------

    def after(self, delay_s: float, then: Callable[[], None]) -> None:
        """Have something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_ns + int(delay_s * SECOND), self._count, then))

    def run(self, until_s: float) -> None:
        """Let time pass until the job has ended or the limit is reached."""
        self.after(0, self._start_controller)
        for node in self.nodes.values():
            self.after(self.rng.uniform(0.1, 1), lambda node=node: self._join(node))
        self.after(1, self._tick)
        while self._queue and self._queue[0][0] <= until_s * SECOND and not self.ended:
            self.now_ns, _, then = heapq.heappop(self._queue)
            then()

    @property
    def job(self) -> JobRecord | None:
        """Return what the controller knows of the job."""
        return self.controller.core.state.jobs.get(JOB)

    @property
    def ended(self) -> bool:
        """Return whether the job is over."""
        return self.job is not None and self.job.state is JobState.ENDED

    # --- faults ----------------------------------------------------------------------------------

    def kill_rank(self, name: str) -> None:
        """Kill a training process; its launcher sees it."""
        node = self.nodes[name]
        if not node.alive or not node.running:
            return
        generation, node.running = node.running, 0
        self._record(node, lambda origin: self._exited(origin, generation, signal=9))
        self._break_collectives(generation, but=name)

    def kill_node(self, name: str) -> None:
        """Cut a node's power."""
        node = self.nodes[name]
        generation = node.running
        was_connected = node.connected
        node.die()
        if was_connected:
            self._stream_ends(node, 0.05)
        self._break_collectives(generation, but=name)

    def return_node(self, name: str) -> None:
        """Boot a dead node, or end the silence of a living one."""
        node = self.nodes[name]
        node.cut_off = False
        if not node.alive:
            node.boot_again()
        self.after(self.rng.uniform(0.1, 1), lambda: self._join(node))

    def cut_off(self, name: str) -> None:
        """Silence a node that goes on living; its stream is noticed late."""
        node = self.nodes[name]
        if node.alive and not node.cut_off:
            node.cut_off, node.connected = True, False
            self._stream_ends(node, self.rng.uniform(1, 20))
            self._break_collectives(node.running, but=name)

    def _stream_ends(self, node: SimulatedNode, after_s: float) -> None:
        stream = node.streams

        def noticed() -> None:
            if node.streams == stream:
                self._submit(events.NodeDisconnected(node.name))

        self.after(after_s, noticed)

    def restart_controller(self, away_s: float) -> None:
        """Kill the controller, and start it again later."""
        if self.controller.up:
            self.controller.kill()
            self.after(away_s, self._start_controller)

    def fatal_finding(self, name: str) -> None:
        """Let a node report a broken GPU."""
        node = self.nodes[name]
        finding = Finding(
            component="gpu/0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79"
        )
        if node.alive:
            self._record(node, lambda o: events.FindingRaised(o, finding, self.now_ns))

    def operator(self, name: str, *, isolate: bool) -> None:
        """Let an operator isolate or release a node."""
        if name in self.controller.core.state.nodes:
            word = events.OperatorIsolated if isolate else events.OperatorReleased
            self._submit(word(name, "ops", "drill"))

    # --- the controller's side -------------------------------------------------------------------

    def _start_controller(self) -> None:
        for node in self.nodes.values():
            node.connected = False
        self.controller.start(self.now_ns)
        for node in self.nodes.values():
            self.after(self.rng.uniform(0.05, 2), lambda node=node: self._connect(node))

    def _submit(self, event: events.Event) -> bool:
        return self.controller.submit(event, self.now_ns)

    def _dispatch(self, action: actions.Action) -> None:
        if isinstance(action, actions.SetTimer):
            wait_s = max(0, action.at_ns - self.now_ns) / SECOND
            self.after(wait_s, lambda: self._timer(action))
        elif isinstance(action, actions.ChooseRecoveryStep):
            self.after(0.01, lambda: self._choose(action))
        elif isinstance(action, actions.ConfirmSilence):
            self.after(self.rng.uniform(0.2, 1), lambda: self._confirm(action))
        elif not isinstance(action, actions.Announce | actions.Isolate | actions.Release):
            self.after(self.rng.uniform(0.001, 0.02), lambda: self._deliver(action))

    def _timer(self, action: actions.SetTimer) -> None:
        if self.controller.core.state.timers.get(action.timer) == action.at_ns:
            self._submit(events.TimerDue(action.timer))

    def _choose(self, action: actions.ChooseRecoveryStep) -> None:
        job, state = self.job, self.controller.core.state
        if not self.controller.up or job is None or job.generation != action.generation:
            return
        catalogue = self.controller.catalogue
        alive = {name for name, node in state.nodes.items() if not node.gone}
        waiting = [
            name
            for name in (*action.holders, *action.others)
            if name in alive
            and catalogue.settled(name)
            < (action.settled_generation if name in action.holders else 0)
        ]
        if waiting:
            self.after(0.1, lambda: self._choose(action))
            return
        reachable = {name: f"{name}:1" for name in alive if state.nodes[name].connected}
        choice = catalogue.choose(action.branch, reachable, expected=action.expected)
        self._submit(
            events.RecoveryStepChosen(
                job=JOB,
                generation=action.generation,
                step=choice.step,
                sources=choice.sources,
                lost=choice.lost,
                reason=choice.reason,
            )
        )

    def _confirm(self, action: actions.ConfirmSilence) -> None:
        asker, peer = self.nodes[action.node], self.nodes[action.peer]
        if asker.connected:
            alive = peer.alive and not peer.cut_off
            self._submit(events.PeerJudged(asker.name, peer.name, action.id, alive))

    # --- the nodes' side -------------------------------------------------------------------------

    def _join(self, node: SimulatedNode) -> None:
        if node.alive and not node.launcher:
            node.launcher = True
            self._record(node, lambda origin: self._joined(origin))
        self._connect(node)

    def _joined(self, origin: "events.Origin") -> events.LauncherJoined:
        return events.LauncherJoined(
            origin=origin,
            job=JOB,
            uid=1000,
            token_sha256="t",
            nodes_min=self.shape.nodes_min,
            nodes_max=self.shape.nodes_max,
            processes_per_node=1,
            reform=True,
            restarts_max=100,
            free_port=20000 + origin.sequence,
            at_ns=self.now_ns,
        )

    def _connect(self, node: SimulatedNode) -> None:
        if not node.alive or node.cut_off or node.connected or not self.controller.up:
            return
        node.connected, node.streams = True, node.streams + 1
        self._submit(node.hello(JOB))
        if self.controller.up:
            node.highest_term = max(node.highest_term, self.controller.core.state.term)
        self._report(node)
        self._drain(node)

    def _record(self, node: SimulatedNode, make: "Callable[[events.Origin], events.Event]") -> None:
        node.unacknowledged.append(make(node.origin()))
        self._drain(node)

    def _drain(self, node: SimulatedNode) -> None:
        while node.connected and node.unacknowledged and self.controller.up:
            self._submit(node.unacknowledged[0])
            if self.controller.up or self.rng.random() < 0.5:
                # A controller that dies before it acknowledges sees the record again.
                node.unacknowledged.pop(0)

    def _deliver(self, action: actions.Action) -> None:
        node = self.nodes[action.node] if not isinstance(action, _NOT_FOR_NODES) else None
        if node is None or not node.connected:
            return
        if isinstance(action, actions.RunCheck):
            self._record(node, lambda o: events.CheckFinished(o, action.id, True, "all is well"))
        elif isinstance(action, actions.StartGeneration):
            self._start_ranks(node, action)
        elif isinstance(action, actions.StopGeneration):
            self._stop_ranks(node, action)

    def _start_ranks(self, node: SimulatedNode, order: actions.StartGeneration) -> None:
        if not node.accepts(order):
            return
        node.running = node.newest = order.generation
        training = self.trainings.setdefault(order.generation, Training())
        training.order[node.name] = order
        training.step = order.restore_step if order.restore_step is not None else -1
        for phase in Phase:
            delay_s = self.rng.uniform(0.1, 0.3) * (list(Phase).index(phase) + 1)
            self.after(delay_s, lambda phase=phase: self._phase(node, order, phase))

    def _phase(self, node: SimulatedNode, order: actions.StartGeneration, phase: Phase) -> None:
        if node.running != order.generation:
            return
        self._record(
            node,
            lambda o: events.PhaseReached(o, JOB, order.generation, phase, self.now_ns),
        )
        if phase is Phase.RESTORED:
            self.trainings[order.generation].restored.add(node.name)
            self._try_step(order.generation)

    def _stop_ranks(self, node: SimulatedNode, order: actions.StopGeneration) -> None:
        node.newest = max(node.newest, order.generation)
        if node.running <= order.generation:
            node.running = 0
        self.after(self.rng.uniform(0.02, 0.1), lambda: self._settle(node, order.generation))

    def _settle(self, node: SimulatedNode, generation: int) -> None:
        if node.alive:
            node.settled = max(node.settled, generation)
            self._report(node)
            port = 30000 + node.sequence
            self._record(
                node, lambda o: events.GenerationStopped(o, JOB, generation, port, self.now_ns)
            )

    def _report(self, node: SimulatedNode) -> None:
        if node.connected and self.controller.up:
            self.controller.catalogue.replace(node.name, node.copies, node.settled)
            self.after(0.01, self._direct)

    def _direct(self) -> None:
        """Tell the members what they may free."""
        job = self.job
        if not self.controller.up or job is None or not job.members:
            return
        catalogue = self.controller.catalogue
        layout = catalogue.layout(job.generation, job.world_size)
        known = any(p.generation == job.generation and p.shards == layout for p in job.branch)
        if layout and not known:
            self._submit(events.LayoutLearned(JOB, job.generation, layout))
        found = catalogue.recoverable(job.generation, job.members, job.world_size)
        if found.step is not None:
            for name in job.holders:
                if self.nodes[name].connected:
                    self.nodes[name].free_below(job.generation, found.step)

    # --- training --------------------------------------------------------------------------------

    def _members(self, generation: int) -> list[str]:
        orders = self.trainings[generation].order.values()
        return [order.node for order in sorted(orders, key=lambda order: order.node_rank)]

    def _whole(self, generation: int) -> bool:
        training = self.trainings[generation]
        sizes = {order.node_count for order in training.order.values()}
        members = self._members(generation)
        return sizes == {len(members)} and all(
            self.nodes[name].running == generation and not self.nodes[name].cut_off
            for name in members
        )

    def whole_generations(self) -> list[int]:
        """Return the generations that could take a step now: never more than one."""
        return [g for g in self.trainings if self._whole(g)]

    def _try_step(self, generation: int) -> None:
        training = self.trainings[generation]
        members = self._members(generation)
        if training.stepping or not self._whole(generation) or training.restored < set(members):
            return
        if training.step + 1 >= self.shape.steps:
            for name in members:
                self.nodes[name].running = 0
                self._record(
                    self.nodes[name],
                    lambda o: events.GenerationFinished(o, JOB, generation, self.now_ns),
                )
            return
        if any(self._slots_full(name, generation) for name in members):
            self.after(0.1, lambda: self._try_step(generation))
            return
        training.stepping, training.committed = True, set()
        self.after(self.rng.uniform(0.8, 1.2), lambda: self._computed(generation))

    def _slots_full(self, name: str, generation: int) -> bool:
        own = [c for c in self.nodes[name].copies if c.generation == generation and not c.replica]
        return len(own) >= SLOTS

    def _computed(self, generation: int) -> None:
        if not self._whole(generation):
            return
        self.trainings[generation].step += 1
        for name in self._members(generation):
            self.after(self.rng.uniform(0, 0.05), lambda name=name: self._commit(name, generation))

    def _commit(self, name: str, generation: int) -> None:
        node, training = self.nodes[name], self.trainings[generation]
        if node.running != generation:
            return
        order, step = training.order[name], training.step
        world = order.node_count
        shards = tuple(f"s{i:02}" for i in range(12) if i * world // 12 == order.node_rank)
        copy = Copy(name, generation, order.node_rank, step, False, f"{step}", 1, shards)
        node.keep(copy)
        self._report(node)
        end_ns = self.now_ns
        self._record(
            node,
            lambda o: events.JobProgressed(
                job=JOB,
                generation=generation,
                first_step=step,
                end_ns=(end_ns,),
                stall_ns=(1_000_000,),
                recoverable_step=step if step > 2 else None,
                origins=(o,),
            ),
        )
        members = self._members(generation)
        peer = members[(order.node_rank + 1) % world]
        self.after(self.rng.uniform(0.01, 0.3), lambda: self._replicate(copy, peer))
        training.committed.add(name)
        if training.committed == set(members):
            training.stepping = False
            self.completed.setdefault(step, []).append(generation)
            self._try_step(generation)

    def _replicate(self, copy: Copy, peer: str) -> None:
        source, target = self.nodes[copy.node], self.nodes[peer]
        joined = source.alive and target.alive and not source.cut_off and not target.cut_off
        if joined and copy in source.copies and target.newest <= copy.generation:
            target.keep(
                Copy(
                    peer,
                    copy.generation,
                    copy.rank,
                    copy.step,
                    True,
                    copy.root_hash,
                    copy.size_bytes,
                    copy.shards,
                )
            )
            self._report(target)

    def _break_collectives(self, generation: int, but: str) -> None:
        """Let the other ranks of a broken generation fail, some at once and some by deadline."""
        if generation not in self.trainings:
            return
        for name in self._members(generation):
            if name != but:
                self.after(
                    self.rng.choice([0.01, 5.0]),
                    lambda name=name: self._collective_failed(name, generation),
                )

    def _collective_failed(self, name: str, generation: int) -> None:
        node = self.nodes[name]
        if node.alive and node.running == generation:
            node.running = 0
            self._record(node, lambda o: self._exited(o, generation, signal=0))

    def _exited(
        self, origin: "events.Origin", generation: int, *, signal: int
    ) -> events.RankExited:
        return events.RankExited(
            origin=origin,
            job=JOB,
            generation=generation,
            rank=0,
            exit_code=1,
            signal=signal,
            last_line="",
            at_ns=self.now_ns,
        )

    # --- liveness --------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Let every node look at its two neighbours, as the UDP probes do."""
        names = list(self.nodes)
        for index, name in enumerate(names):
            for peer in (names[index - 1], names[(index + 1) % len(names)]):
                seen, watcher = self.nodes[peer], self.nodes[name]
                if watcher.connected and (not seen.alive or seen.cut_off):
                    self.after(3, lambda n=name, p=peer: self._silent(n, p))
        self.after(1, self._tick)

    def _silent(self, name: str, peer: str) -> None:
        watcher, seen = self.nodes[name], self.nodes[peer]
        known = self.controller.core.state.nodes
        if watcher.connected and peer in known and (not seen.alive or seen.cut_off):
            self._submit(events.PeerReported(name, peer, True))


_NOT_FOR_NODES = (
    actions.SetTimer,
    actions.Announce,
    actions.ChooseRecoveryStep,
)
