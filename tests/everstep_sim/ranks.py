"""Simulated training processes: they step together, snapshot every step, and fail together.

They take slots as the SDK and the agent do (decision 083): the answer to a commit grants the next
slot if one is free, so that an agent that stands still costs no step then; nobody waits for a
commit; a wait for a slot has a bound, and there is one for each recoverable step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.node import SLOTS, Leftovers, LocalJob, SimulatedNode
from everstep_sim.timeline import SECOND, VirtualTime

# So long a snapshot waits for a slot: so many times what slots took lately, within these bounds.
SLOT_WAIT_S, _SLOT_WAIT_MIN_S, _SLOT_WAIT_TIMES = 5.0, 0.5, 4.0
# So long it waits for an agent that gives no sign of life. After a wait in vain snapshots are left
# out without one: until a newer step is recoverable, or until the agent answers.
ANSWER_WAIT_S = 1.0
# So long after SIGKILL a launcher waits for a rank, and an agent for the memory of its device.
UNKILLABLE_S, RELEASE_S = 10.0, 15.0
# A copy that is still needed is offered again to a peer that could not be reached.
_OFFERED_AGAIN_S = 1.0
# A rank that hangs before a phase is looked at again.
_AGAIN_S = 0.5
# So long ranks wait after the last step before a planned restart.
HOLD_S = 5.0
# Logical shards of the state, spread over the ranks whatever their number.
SHARDS = 12


@dataclass(slots=True)
class SimulatedGeneration:
    """The ranks of one generation, which can only step together."""

    orders: dict[str, actions.StartGeneration] = field(default_factory=dict)
    # How far the ranks of each node have come, and which have their state.
    reached: dict[str, Phase] = field(default_factory=dict)
    restored: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    step: int = -1
    stepping: bool = False
    # By member and what it waits for (a slot, or else an answer), since when it does.
    waits_since_ns: dict[tuple[str, bool], int] = field(default_factory=dict)
    # By member, what was recoverable when it last waited for a slot in vain.
    vain: dict[str, StepKey | None] = field(default_factory=dict)
    # Members whose last commit was answered with a slot for the next step.
    granted: set[str] = field(default_factory=set)
    # Steps that were committed to an agent that stands still, by member.
    posted: dict[str, int] = field(default_factory=dict)
    # Since when ranks wait for a planned restart, and after which step.
    held_since_ns: dict[int, int] = field(default_factory=dict)

    @property
    def members(self) -> list[str]:
        """Return the nodes that were started, in rank order."""
        ordered = sorted(self.orders.values(), key=lambda order: order.node_rank)
        return [order.node for order in ordered]


class Ranks:
    """Simulated ranks of one job: they run what the controller orders, and nothing else."""

    def __init__(
        self, fleet: SimulatedFleet, time: VirtualTime, job: str, steps: int, parts: int = 0
    ) -> None:
        self.job = job
        self._fleet = fleet
        self._time = time
        self._steps = steps
        self._parts = parts
        self.generations: dict[int, SimulatedGeneration] = {}
        # Which generations completed a step; a rolled back step has more than one.
        self.completed: dict[int, list[int]] = {}
        self.recoverable_step: int | None = None
        self.step_s = 1.0
        # How many own snapshots a rank keeps.
        self.slots = SLOTS
        # For how long a rank of a generation still holds the others back in its next step.
        self.held_s: Callable[[int], float] = lambda generation: 0.0
        # What the agent of a node does when the rank of a generation has died there.
        self.exited: Callable[[SimulatedNode, int], None] = lambda node, generation: None
        # What a rank does by itself with a step that is complete; None: nothing, and then ranks
        # snapshot each step, whatever their agents were told.
        self.saves_alone: Callable[[SimulatedNode, Copy], None] | None = None
        # Whether a rank of a node hangs before it comes to a phase.
        self.hangs_before: Callable[[int, str, Phase], bool] = lambda generation, node, phase: False

    def start(self, node: SimulatedNode, order: actions.StartGeneration) -> None:
        """Start a node's ranks, unless the order is old."""
        local = node.of(self.job)
        if not local.accepts(order):
            self._tell_again(node, order.generation)
            return
        local.begin(order)
        ours = self.generations.setdefault(order.generation, SimulatedGeneration())
        ours.orders[node.name] = order
        ours.step = order.restore_step if order.restore_step is not None else -1
        for number, phase in enumerate(Phase, start=1):
            delay_s = self._time.rng.uniform(0.1, 0.3) * number
            self._time.after(delay_s, partial(self._reach, node, order.generation, phase))

    def stop(self, node: SimulatedNode, order: actions.StopGeneration) -> None:
        """Stop a node's ranks, and tell when their memory is settled."""
        local, left = node.of(self.job), reports.GenerationStopped(order.generation, 0)
        wait_s = 0.0
        if local.settled < local.planned == order.generation:
            left, wait_s = _left_behind(node.leftovers, left)
        local.newest = max(local.newest, order.generation)
        local.stopped = max(local.stopped, order.generation)
        if local.running <= order.generation:
            local.running = 0
        self._time.soon(0.02 + wait_s, 0.1 + wait_s, partial(self._settle, node, left))

    def rename(self, name: str, to: str) -> None:
        """Have a node of this name be called otherwise."""
        for ours in self.generations.values():
            if name in ours.orders:
                ours.orders[to] = replace(ours.orders.pop(name), node=to)
            if name in ours.reached:
                ours.reached[to] = ours.reached.pop(name)
            for told in (ours.restored, ours.committed):
                if name in told:
                    told.remove(name)
                    told.add(to)
            for silent in (False, True):
                ours.waits_since_ns.pop((name, silent), None)

    def _on(self, name: str) -> LocalJob:
        return self._fleet.nodes[name].of(self.job)

    def whole(self, generation: int) -> bool:
        """Return whether a generation could take a step now."""
        orders, nodes = self.generations[generation].orders, self._fleet.nodes
        alone = len(orders) == 1
        return all(
            order.node_count == len(orders)
            and nodes[name].of(self.job).running == generation
            and (alone or not nodes[name].cut_off)
            for name, order in orders.items()
        )

    def _frozen_s(self, generation: int) -> float:
        """Return for how long some member is still frozen: the others wait for its ranks."""
        nodes = (self._fleet.nodes[name] for name in self.generations[generation].members)
        until_ns = max(node.ranks_come_ns for node in nodes)
        return max(0, until_ns - self._time.now_ns) / SECOND + self.held_s(generation)

    def kill(self, node: SimulatedNode) -> None:
        """Kill the rank of a node; its launcher sees it."""
        local = node.of(self.job)
        generation, local.running = local.running, 0
        self._fleet.record(node, partial(self._exited, generation=generation, signal=9))
        self.exited(node, generation)
        self.break_collectives(generation, but=node.name)

    def break_collectives(self, generation: int, but: str) -> None:
        """Let the other ranks of a generation fail, some at once and some by deadline."""
        if generation not in self.generations:
            return
        for name in self.generations[generation].members:
            if name != but:
                delay_s = self._time.rng.choice([0.01, 5.0])
                self._time.after(delay_s, partial(self._collective_failed, name, generation))

    def _collective_failed(self, name: str, generation: int) -> None:
        node = self._fleet.nodes[name]
        if node.alive and self._on(name).running == generation:
            self._on(name).running = 0
            self._fleet.record(node, partial(self._exited, generation=generation, signal=0))

    def _tell_again(self, node: SimulatedNode, generation: int) -> None:
        """Say how far the ranks of a node have come that it was asked to start once more."""
        if node.of(self.job).running != generation:
            return
        reached = self.generations[generation].reached.get(node.name)
        if reached is not None:
            self._tell_phase(node, generation, reached)

    def _reach(self, node: SimulatedNode, generation: int, phase: Phase) -> None:
        if node.of(self.job).running != generation:
            return
        if node.ranks_come_ns > self._time.now_ns:
            wait_s = (node.ranks_come_ns - self._time.now_ns) / SECOND
            self._time.after(wait_s + 0.01, partial(self._reach, node, generation, phase))
            return
        if self.hangs_before(generation, node.name, phase):
            self._time.after(_AGAIN_S, partial(self._reach, node, generation, phase))
            return
        self.generations[generation].reached[node.name] = phase
        self._tell_phase(node, generation, phase)
        if phase is Phase.RESTORED:
            self.generations[generation].restored.add(node.name)
            self._try_step(generation)

    def _tell_phase(self, node: SimulatedNode, generation: int, phase: Phase) -> None:
        at_ns = self._time.now_ns
        self._fleet.record(
            node,
            lambda origin: events.Reported(
                origin, at_ns, reports.PhaseReached(generation, phase), self.job
            ),
        )

    def _settle(self, node: SimulatedNode, stopped: reports.GenerationStopped) -> None:
        if not node.alive:
            return
        local = node.of(self.job)
        local.settled = max(local.settled, stopped.generation)
        self._fleet.report(node)
        told, at_ns = replace(stopped, free_port=node.free_port()), self._time.now_ns
        self._fleet.record(node, lambda origin: events.Reported(origin, at_ns, told, self.job))
        if stopped.abandoned:
            self._fleet.find(node, _stuck_finding(node.leftovers))

    def _try_step(self, generation: int) -> None:
        ours = self.generations[generation]
        if ours.stepping or not self.whole(generation) or ours.restored < set(ours.members):
            return
        if ours.step + 1 >= self._steps:
            self._finish(generation)
        elif self._waits(generation) or self._is_held(generation):
            self._time.after(0.1, partial(self._try_step, generation))
        elif frozen_s := self._frozen_s(generation):
            self._time.after(frozen_s + 0.01, partial(self._try_step, generation))
        else:
            ours.stepping, ours.committed = True, set()
            least_s, most_s = 0.8 * self.step_s, 1.2 * self.step_s
            self._time.soon(least_s, most_s, partial(self._computed, generation))

    def _finish(self, generation: int) -> None:
        at_ns = self._time.now_ns
        for name in self.generations[generation].members:
            node, local = self._fleet.nodes[name], self._on(name)
            local.running, local.settled = 0, max(local.settled, generation)
            self._fleet.report(node)
            self._fleet.record(
                node,
                lambda origin: events.Reported(
                    origin, at_ns, reports.GenerationFinished(generation), self.job
                ),
            )

    def _waits(self, generation: int) -> bool:
        """Return whether some member still hopes for a slot, or for its agent's answer."""
        # A list: each of them takes off the answer to its commit, whatever others wait for.
        return any([self._hopes(name, generation) for name in self.generations[generation].members])

    def _is_held(self, generation: int) -> bool:
        """Return whether ranks wait for a restart that is planned after the step they have made."""
        ours = self.generations[generation]
        holds = (self._on(name) for name in ours.members)
        told = any(one.directed == generation and one.hold_after == ours.step for one in holds)
        if self.saves_alone is None or not told:
            return False
        since_ns = ours.held_since_ns.setdefault(ours.step, self._time.now_ns)
        return self._time.now_ns - since_ns < HOLD_S * SECOND

    def _hopes(self, name: str, generation: int) -> bool:
        ours, node, local = self.generations[generation], self._fleet.nodes[name], self._on(name)
        self._take_answer(node, generation)
        silent = node.agent and not self._fleet.agent_runs(node)
        if silent:
            wait_s = 0.0 if name in ours.granted else ANSWER_WAIT_S
        else:
            wait_s = self._slot_wait_s(node, generation)
        ours.waits_since_ns.pop((name, silent), None)
        if not wait_s:
            ours.waits_since_ns.pop((name, not silent), None)
            return False
        since_ns = ours.waits_since_ns.setdefault((name, not silent), self._time.now_ns)
        if self._time.now_ns - since_ns < wait_s * SECOND:
            return True
        if not silent:
            ours.vain[name] = local.recoverable
        return False

    def _slot_wait_s(self, node: SimulatedNode, generation: int) -> float:
        ours, local = self.generations[generation], self._on(node.name)
        in_vain = local.member_away or not node.agent or node.hears_nobody
        if in_vain or not self._slots_full(node.name, generation):
            return 0.0
        if node.name in ours.vain and ours.vain[node.name] == local.recoverable:
            return 0.0
        longest_s = max(local.slots_taken_s, default=SLOT_WAIT_S)
        return min(SLOT_WAIT_S, max(_SLOT_WAIT_MIN_S, _SLOT_WAIT_TIMES * longest_s))

    def _slots_full(self, name: str, generation: int) -> bool:
        copies = self._on(name).copies
        own = sum(c.generation == generation and not c.replica for c in copies)
        return own >= self.slots

    def _computed(self, generation: int) -> None:
        if frozen_s := self._frozen_s(generation):
            self._time.after(frozen_s + 0.01, partial(self._computed, generation))
        elif self.whole(generation):
            ours = self.generations[generation]
            ours.step += 1
            if self._parts:  # what one rank saves of it is as good as what all save
                self.completed.setdefault(ours.step, []).append(generation)
            for name in ours.members:
                self._time.soon(0, 0.05, partial(self._commit, name, generation))

    def _commit(self, name: str, generation: int) -> None:
        node, ours = self._fleet.nodes[name], self.generations[generation]
        if self._on(name).running != generation:
            return
        step = ours.step
        if self.saves_alone is not None:
            self.saves_alone(node, _copy_of(ours.orders[name], step, self._parts))
        if node.agent:  # without it, ranks go on unsaved
            if self.saves_alone is None or self._on(name).plans(generation, step):
                self._snapshot(node, generation)
            self._tell_progress(node, generation)
        ours.committed.add(node.name)
        if ours.committed == set(ours.members):
            ours.stepping = False
            if not self._parts:
                self.completed.setdefault(step, []).append(generation)
            self._try_step(generation)

    def _snapshot(self, node: SimulatedNode, generation: int) -> None:
        """Commit the step if there is a slot, granted or asked for; else it is left out."""
        ours, name = self.generations[generation], node.name
        self._take_answer(node, generation)
        granted, runs = name in ours.granted, self._fleet.agent_runs(node)
        ours.granted.discard(name)
        if runs and not self._slots_full(name, generation):
            self._save(node, generation, ours.step)
        elif granted and not runs:
            ours.posted[name] = ours.step
        elif runs:
            rank = ours.orders[name].node_rank
            self._on(name).left_out = reports.PassedStep(generation, rank, ours.step)
            self._fleet.report(node)

    def _take_answer(self, node: SimulatedNode, generation: int) -> None:
        """Let an agent that goes on take what was committed while it stood still."""
        ours = self.generations[generation]
        if node.name not in ours.posted or (node.agent and not self._fleet.agent_runs(node)):
            return
        step = ours.posted.pop(node.name)
        if node.agent and self._on(node.name).running == generation:
            self._save(node, generation, step)

    def _save(self, node: SimulatedNode, generation: int, step: int) -> None:
        ours = self.generations[generation]
        order, local = ours.orders[node.name], node.of(self.job)
        copy = _copy_of(order, step, self._parts)
        local.commit(copy, self._time.now_ns)
        if not self._slots_full(node.name, generation):
            ours.granted.add(node.name)
        self._fleet.report(node)
        alone = order.node_count == 1
        peer = local.target if alone else ours.members[(order.node_rank + 1) % order.node_count]
        if peer:
            self._time.soon(0.01, 0.3, partial(self._replicate, copy, peer))

    def _tell_progress(self, node: SimulatedNode, generation: int) -> None:
        row = events.JobProgressed(
            job=self.job,
            generation=generation,
            first_step=self.generations[generation].step,
            end_ns=(self._time.now_ns,),
            stall_ns=(1_000_000,),
            recoverable_step=self.recoverable_step,
        )
        self._fleet.record(node, lambda _: row)

    def _replicate(self, copy: Copy, peer: str) -> None:
        source, target = self._on(copy.node), self._on(peer)
        joined = not self._fleet.silent(copy.node) and not self._fleet.silent(peer)
        if copy not in source.copies:
            return
        if not joined:
            self._time.after(_OFFERED_AGAIN_S, partial(self._replicate, copy, peer))
        elif target.newest <= copy.generation:
            target.keep(copy._replace(node=peer, replica=True))
            self._fleet.report(self._fleet.nodes[peer])

    def _exited(
        self, origin: Origin, *, generation: int, signal: int
    ) -> events.Reported[reports.RankExited]:
        return events.Reported(
            origin,
            self._time.now_ns,
            reports.RankExited(
                generation=generation,
                rank=0,
                exit_code=0 if signal else 1,
                signal=signal,
                last_line="",
                kind="killed" if signal else "collective",
            ),
            self.job,
        )


def _left_behind(
    leftovers: Leftovers, stopped: reports.GenerationStopped
) -> tuple[reports.GenerationStopped, float]:
    """Return what is told of a generation that was stopped, and how much later for what is left."""
    if leftovers.stuck:
        return replace(stopped, abandoned=(70,)), UNKILLABLE_S
    if leftovers.memory_s > RELEASE_S:
        return replace(stopped, held_devices=("gpu/0",)), RELEASE_S
    return stopped, leftovers.memory_s


def _stuck_finding(leftovers: Leftovers) -> Finding:
    return Finding(
        component="host/tasks",
        condition="RanksStuckInKernel",
        severity=Severity.FATAL,
        message="ranks that were killed are stuck in the kernel, and keep their devices",
        mode=Mode.ENFORCE if leftovers.in_driver else Mode.ADVISE,
    )


def _copy_of(order: actions.StartGeneration, step: int, parts: int) -> Copy:
    owned = [i for i in range(SHARDS) if i * order.node_count // SHARDS == order.node_rank]
    layout = ",".join(f"s{i:02}" for i in owned)
    if parts:
        layout = f"part-{order.node_rank % parts}"
    rank, root_hash = order.node_rank, f"{step:04}"
    return Copy(order.node, order.generation, rank, step, False, root_hash, 1, layout)
