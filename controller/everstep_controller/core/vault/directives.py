"""Vault directives: what each node's vault does for a job, decided from the reports of all nodes.

Nothing here is journaled: agents tell it again to a controller that starts. Time is an argument.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from everstep_common.orders import Publish
from everstep_common.reports import Standbys, Turnover
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import (
    CadenceChosen,
    Event,
    FinalSaveEnded,
    KeeperChosen,
    LayoutLearned,
    RecoveryStepChosen,
    StepRecoverable,
    StoringMeasured,
)
from everstep_controller.core.fleet.incidents import failures_ns_of_job
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import Cadence
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.absent_saving import AbsentSaving, kept_step
from everstep_controller.core.vault.cadence import (
    CadenceBasis,
    SnapshotPhase,
    bring_together,
    decide_cadence,
)
from everstep_controller.core.vault.catalogue import Catalogue, Recoverable
from everstep_controller.core.vault.guards import Guards, find_guards
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.core.vault.persistence import (
    Persistence,
    PersistenceInput,
    choose_stand_ins,
    is_stopped,
    lacks_own,
    stored_on_branch,
)
from everstep_controller.core.vault.recovery_step import choose_step, question_of, reachable_nodes
from everstep_controller.core.vault.replication import (
    Replication,
    plan_collectors,
    plan_keeper,
    plan_ring,
)
from everstep_controller.core.vault.spares import (
    SpareNeed,
    SpareOrders,
    plan_prefetches,
    spare_memory,
    spares_of,
)

# Number of nodes that a sentence names.
_NAMED_MAX = 3

# How much longer or shorter a step must have been on its way to storage to be a row of the journal.
_STORING_CHANGE = 0.25


# Slots are full while a member is away, and nobody may have anything to tell.
_AWAY_LOOK_S = 1.0

# A guard that brings nothing tells nothing.
_GUARD_LOOK_S = 10.0


@dataclass(slots=True)
class Holdings:
    """Reports of all nodes on one job: their copies, and the standbys that wait there."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    # Nodes that hold copies.
    holders: set[str] = field(default_factory=set)
    # Nodes whose memory is enough for the replicas of one member only.
    short: set[str] = field(default_factory=set)
    standbys: dict[str, Standbys] = field(default_factory=dict)
    # How long slots are taken, by node; nodes that do not tell it are left out.
    turnovers: dict[str, Turnover] = field(default_factory=dict)
    # Copies that turned out bad since this controller began.
    bad_copies: int = 0

    def record(self, node: str, report: NodeHoldings) -> None:
        """Replace what is known of a node by its report."""
        self.catalogue.record_copies(node, report.copies, report.settled_generation, report.news)
        if report.passed:
            self.catalogue.record_passed(report.passed)
        self.catalogue.record_stored(node, report.stored, report.storage_id)
        (self.holders.add if report.copies else self.holders.discard)(node)
        (self.short.add if report.replicas_short else self.short.discard)(node)
        _put(self.standbys, node, report.standbys)
        _put(self.turnovers, node, report.turnover)
        self.bad_copies += report.bad_copies

    def clear(self, node: str, settled_generation: int) -> None:
        """Record that a node's agent knows nothing of the job."""
        self.catalogue.replace(node, (), settled_generation)
        self.holders.discard(node)
        self.standbys.pop(node, None)
        self.turnovers.pop(node, None)

    def forget(self, node: str) -> None:
        """Drop all that a lost node held."""
        self.catalogue.forget(node)
        self.holders.discard(node)
        self.standbys.pop(node, None)
        self.turnovers.pop(node, None)
        self.short.discard(node)

    def makes_standbys(self, nodes: Collection[str]) -> bool:
        """Return whether some of these nodes are making warm standbys."""
        return any(self.standbys[node].making for node in nodes if node in self.standbys)

    def slowest_turnover(self, nodes: Collection[str]) -> Turnover | None:
        """Return how long slots are taken where they are longest; None: no node has told it."""
        told = [self.turnovers[node] for node in nodes if node in self.turnovers]
        if not told:
            return None
        return Turnover(
            min(one.slots for one in told),
            max(one.p50_ns for one in told),
            max(one.p99_ns for one in told),
        )


_T = TypeVar("_T")


def _put(known: dict[str, _T], node: str, told: _T | None) -> None:
    if told is None:
        known.pop(node, None)
    else:
        known[node] = told


@dataclass(frozen=True, slots=True)
class DirectedGeneration:
    """The generation that runs or ran last: it is directed until the next one starts."""

    number: int = 0
    members: tuple[str, ...] = ()
    world_size: int = 0
    # Parts of the state that together are the whole of it, as the journal has them.
    parts: frozenset[str] = frozenset()
    # By member, the one that it tells its steps while no controller is there.
    collectors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VaultOrders:
    """Decisions for the vaults of a job; replaced whole each time."""

    replication: Replication = field(default_factory=Replication)
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(None, ()))
    cadence: Cadence = field(default_factory=Cadence)
    spares: SpareOrders = field(default_factory=SpareOrders)
    # What nodes fetch while the job waits, because one other node only has it.
    guards: Guards = field(default_factory=Guards)
    publish: Publish | None = None
    # By node, the other nodes' ranks whose files it writes to storage from its replicas.
    stand_ins: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # The step after which a restart is planned; None: none is.
    hold_after: int | None = None
    # A member is doubtful: nothing becomes recoverable until its agent is back.
    member_away: bool = False
    phase: SnapshotPhase = field(default_factory=SnapshotPhase)
    absent: AbsentSaving = field(default_factory=AbsentSaving)
    # The newest step of the generation that is whole in storage.
    stored_step: int | None = None

    @property
    def restorable_step(self) -> int | None:
        """Return the newest step that survives the loss of any one node, wherever it is.

        As a rule storage is behind. It is ahead where members were away, and could not replicate.
        """
        step, stored = self.recoverable.step, self.stored_step
        if stored is None or (step is None and not self.member_away):
            return step
        return stored if step is None else max(step, stored)

    @property
    def looks_again_s(self) -> float | None:
        """Return in which time to decide again though nobody tells anything."""
        if self.guards.orders or self.guards.tried:
            return _GUARD_LOOK_S
        return _AWAY_LOOK_S if self.member_away else self.phase.looks_again_s

    def held_at(self, step: int) -> bool:
        """Return whether a restart is planned for when this step is recoverable."""
        return self.hold_after is not None and self.hold_after <= step


# Standbys that are still being made after this time never will be: their imports fail, or wait.
_MAKING_NS_MAX = 300 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class StandbysMade:
    """Time in which nodes of a job make warm standbys, and so have less left for its ranks."""

    since_ns: int | None = None
    busy_until_ns: int = 0

    def after(self, makes: bool, now_ns: int) -> "StandbysMade":
        """Return the same, seen now."""
        if not makes:
            return StandbysMade(None, self.busy_until_ns)
        since_ns = now_ns if self.since_ns is None else self.since_ns
        return StandbysMade(since_ns, min(now_ns, since_ns + _MAKING_NS_MAX))


class Decision(NamedTuple):
    """One decision: the orders before it, and the inputs from which persistence was decided."""

    before: VaultOrders
    inputs: PersistenceInput


@dataclass(slots=True)
class JobSnapshots:
    """Snapshots of one lineage: the nodes' reports, and the orders decided from them."""

    # The newest job of the lineage.
    job: str
    holdings: Holdings = field(default_factory=Holdings)
    generation: DirectedGeneration = field(default_factory=DirectedGeneration)
    orders: VaultOrders = field(default_factory=VaultOrders)
    persistence: Persistence = field(default_factory=Persistence)
    making: StandbysMade = field(default_factory=StandbysMade)
    # Question of a recovery for the step to restore, which the core waits to have answered.
    asked: ChooseRecoveryStep | None = None

    def record_report(self, node: str, report: NodeHoldings) -> None:
        """Record what a node tells of its copies and of its writing to storage."""
        self.holdings.record(node, report)
        for key, reason in report.failures:
            self.persistence.failures[key] = reason

    def end(self) -> None:
        """Direct nobody any more: the job is over, and what is left is what nodes keep of it."""
        self.generation = replace(self.generation, members=())
        self.orders, self.persistence, self.asked = VaultOrders(), Persistence(), None
        self.holdings.bad_copies = 0

    def adopt(self, job: JobRecord, state: State) -> None:
        """Go on with what was decided before a restart, and with a generation that was started."""
        if job.cadence.changed_ns > self.orders.cadence.changed_ns:
            self.orders = replace(self.orders, cadence=job.cadence)
        # Of one that closes, only what has run: a generation that was merely planned holds nothing.
        closes = job.state is JobState.CLOSING and bool(job.generation.start_reason)
        runs = job.state in ACTIVE or job.state is JobState.STOPPING or closes
        if not runs or job.generation.number == self.generation.number:
            return
        members = tuple(job.generation.members)
        # No rank of a new generation has made a step: a rule that was to begin ahead of the ranks
        # before them holds from their first one. Else each step until there would be snapshotted.
        cadence = self.orders.cadence
        if self.generation.number:
            cadence = replace(cadence, start=0)
        self.generation = DirectedGeneration(
            job.generation.number, members, job.world_size, collectors=plan_collectors(members)
        )
        ring = plan_ring(members, state, self.holdings.short)
        recoverable = replace(self.orders.recoverable, dead_steps=())
        self.orders = replace(
            self.orders,
            replication=ring,
            recoverable=recoverable,
            cadence=cadence,
            spares=SpareOrders(),
        )

    def decide(self, job: JobRecord, state: State, now_ns: int) -> Decision:
        """Decide anew what is recoverable, replicated, persisted and snapshotted."""
        self._learn_parts(job)
        before, directed, catalogue = self.orders, self.generation, self.holdings.catalogue
        replication = self._replicate(job, state)
        recoverable = catalogue.recoverable(
            directed.number,
            _keepers(directed, replication),
            directed.world_size,
            directed.parts,
            before.recoverable.dead_steps,
        )
        stored, absent = self._save_without_agents(job, state, now_ns)
        dead = recoverable.dead_steps
        inputs = self._persistence_inputs(job, state, recoverable.step, now_ns)
        inputs = replace(inputs, absent_step=absent.step)
        publish = self.persistence.decide(inputs)
        wish = job.planned if job.generation.number == directed.number else None
        # Every member that is there persists its own ranks, of which it has not lost the copies.
        named = self.persistence.named
        away = len(inputs.connected) < len(directed.members) or lacks_own(inputs, named)
        phase = before.phase.after(recoverable.step, dead, now_ns)
        held = catalogue.steps(directed.number)
        # What is freed already is none to go back to.
        left = {step: copies for step, copies in held.items() if step not in dead} if dead else held
        kept = kept_step(job, left, recoverable.step, stored)
        passed = absent.in_the_way(held, kept, stored) if self._all_told(state) else ()
        if passed:
            recoverable = replace(recoverable, dead_steps=tuple(sorted({*dead, *passed})))
        self.orders = VaultOrders(
            replication,
            recoverable,
            self._decide_cadence(job, state, phase, now_ns),
            self._prepare_spares(job, state, replication, recoverable.step),
            find_guards(before.guards, job, state, catalogue, now_ns),
            publish,
            choose_stand_ins(inputs, named) if away else {},
            None if wish is None else wish.after_step,
            any(state.nodes[name].doubtful for name in directed.members if name in state.nodes),
            phase,
            absent,
            stored,
        )
        return Decision(before, inputs)

    def _save_without_agents(
        self, job: JobRecord, state: State, now_ns: int
    ) -> tuple[int | None, AbsentSaving]:
        """Return the newest step in storage, and what ranks without an agent are to write."""
        directed, nodes = self.generation, state.nodes
        if job.spec.storage is None or job.generation.number != directed.number:
            return None, AbsentSaving()
        keys = stored_on_branch(job, self.holdings.catalogue)
        steps = [step for number, step in keys if number == directed.number]
        stored = max(steps, default=None)
        away = [name for name in directed.members if name in nodes and nodes[name].doubtful]
        return stored, self.orders.absent.after(job, away, stored, now_ns)

    def _all_told(self, state: State) -> bool:
        """Return whether each member has told what it holds whose agent is not away.

        Before that, as after a start of the controller, nobody knows what is whole.
        """
        told, nodes = self.holdings.catalogue.nodes, state.nodes
        members = (name for name in self.generation.members if name in nodes)
        return all(nodes[name].doubtful or name in told for name in members)

    def _decide_cadence(
        self, job: JobRecord, state: State, phase: SnapshotPhase, now_ns: int
    ) -> Cadence:
        members = self.generation.members
        turnover = self.holdings.slowest_turnover(members)
        self.making = self.making.after(self.holdings.makes_standbys(members), now_ns)
        basis = CadenceBasis(
            failures_ns_of_job(state, job), state.settings, turnover, self.making.busy_until_ns
        )
        decided = decide_cadence(self.orders.cadence, job, basis, now_ns)
        # Before a planned restart all ranks save its step, and then none goes on.
        runs = job.generation.number == self.generation.number and job.state in ACTIVE
        if not runs or job.planned is not None:
            return decided
        return bring_together(decided, job, phase, turnover, now_ns)

    def directives(self) -> Iterator[tuple[str, Directive]]:
        """Yield the directives, by the names of the nodes."""
        orders = self.orders
        members = _keepers(self.generation, orders.replication)
        directed = self.holdings.holders.union(
            members, orders.spares.waiting, orders.spares.prefetches, orders.guards.orders
        )
        shared = self._shared_directive()
        for node in sorted(directed):
            yield node, self._directive(node, shared)

    def choose_step(self, state: State) -> RecoveryStepChosen | None:
        """Return the answer to what was asked; None before all holders have settled or are lost."""
        asked, catalogue = self.asked, self.holdings.catalogue
        missing = [] if asked is None else _missing_holders(asked, catalogue, state)
        if asked is None or any(name not in asked.overdue for name in missing):
            return None
        self.asked = None
        reachable = reachable_nodes(state, catalogue)
        for name in missing:
            reachable.pop(name, None)
        choice = choose_step(catalogue, question_of(asked, reachable))
        return RecoveryStepChosen(
            job=asked.job,
            generation=asked.generation,
            step=choice.step,
            sources=choice.sources,
            lost=choice.lost and f"{choice.lost}{_without(missing)}",
            reason=f"{choice.reason}{_without(missing)}",
            step_generation=choice.generation,
            stored=choice.stored,
            tier=choice.tier,
        )

    def untold(self, job: JobRecord) -> StepRecoverable | None:
        """Return what is recoverable in the generation that runs, if the core does not know it."""
        step, generation = self.restorable_step(job), self.generation.number
        before = job.lineage.recoverable_step
        known = job.generation.number != generation or before == step
        if step is None or known or job.state not in (JobState.CLOSING, *ACTIVE):
            return None
        return StepRecoverable(self.job, generation, step)

    def restorable_step(self, job: JobRecord) -> int | None:
        """Return the newest step that survives the loss of any one node; None: it is not known.

        What members have still to tell of, as after a start of the controller, may be newer than
        the newest in storage; as the core knows, it is.
        """
        step, before = self.orders.restorable_step, job.lineage.recoverable_step
        runs = job.generation.number == self.generation.number
        if runs and step is not None and before is not None and step == self.orders.stored_step:
            return step if step >= before else None
        return step

    # ---------------------------------------------------------------------------------------------

    def _learn_parts(self, job: JobRecord) -> None:
        points = [p for p in job.lineage.branch if p.generation == self.generation.number]
        layouts: Collection[str] = points[-1].layouts if points else ()
        known = self.generation.parts
        if len(layouts) != len(known) or not known.issuperset(layouts):
            self.generation = replace(self.generation, parts=frozenset(layouts))

    def _replicate(self, job: JobRecord, state: State) -> Replication:
        before, directed = self.orders.replication, self.generation
        if len(directed.members) > 1:
            short = self.holdings.short
            return before if short == before.short else plan_ring(directed.members, state, short)
        # While the job stops, the keeper of its replicas stays the same, so nothing is freed.
        runs = job.generation.number == directed.number and job.state in ACTIVE
        return plan_keeper(before, job, state, self.holdings.holders) if runs else before

    def _persistence_inputs(
        self, job: JobRecord, state: State, step: int | None, now_ns: int
    ) -> PersistenceInput:
        directed, catalogue = self.generation, self.holdings.catalogue
        nodes = state.nodes
        # Of a generation that ran before, a member may have been removed, or have another name now.
        there = [one for one in directed.members if one in nodes and nodes[one].liveness.connected]
        connected = [one for one in there if not nodes[one].doubtful]
        if is_stopped(job):
            # A lost node has taken its replicas with it: a step of which one copy is whole is worth
            # saving.
            alone = catalogue.recoverable(directed.number, (), directed.world_size, directed.parts)
            step = alone.step
        return PersistenceInput(
            job, directed.number, directed.world_size, catalogue, step, connected, now_ns
        )

    def _prepare_spares(
        self, job: JobRecord, state: State, replication: Replication, step: int | None
    ) -> SpareOrders:
        before, catalogue = self.orders.spares, self.holdings.catalogue
        prefetches = plan_prefetches(before.prefetches, job, state, catalogue)
        waiting = spares_of(job).difference(self.holdings.holders, (replication.keeper,))
        memory = before.memory
        if memory is None and step is not None and (waiting or prefetches):
            # Found once for each generation, because it reads every copy of a step.
            copies = catalogue.steps(self.generation.number).get(step)
            memory = None if copies is None else spare_memory(copies, job.spec.processes_per_node)
        # Before the size of the copies is known, spares get the same directive as members.
        return SpareOrders() if memory is None else SpareOrders(memory, waiting, prefetches)

    def _shared_directive(self) -> Directive:
        """Return the directive to nodes that are neither spares nor have a task of their own."""
        orders = self.orders
        every, start = orders.cadence.every, orders.cadence.start
        if orders.absent.step is not None:
            every, start = orders.absent.step, orders.absent.start
        return Directive(
            self.job,
            self.generation.number,
            orders.recoverable.step,
            orders.recoverable.dead_steps,
            "",
            "",
            tuple(self.persistence.named) if orders.publish is not None else (),
            None,
            every,
            start,
            hold_after=orders.hold_after,
            member_away=orders.member_away,
        )

    def _directive(self, node: str, shared: Directive) -> Directive:
        orders, spares = self.orders, self.orders.spares
        if (guarded := orders.guards.orders.get(node)) is not None:
            # Copies alone: it needs no memory for ranks.
            need, number = SpareNeed(0, 0), self.generation.number
            return Directive(self.job, number, None, (), "", spare=need, prefetch=guarded)
        prefetch = spares.prefetches.get(node)
        if prefetch is not None or node in spares.waiting:
            spare, number = spares.memory, self.generation.number
            return Directive(self.job, number, None, (), "", spare=spare, prefetch=prefetch)
        target, keeps = orders.replication.targets.get(node, ""), orders.replication.keeper
        sources = orders.replication.sources.get(node, ())
        first = bool(self.generation.members) and node == self.generation.members[0]
        with_task = (self.persistence.publisher, keeps)
        collector = self.generation.collectors.get(node, "")
        if not first and node not in orders.stand_ins and node not in with_task:
            own = (target, collector)
            between = shared[_TARGET + len(own) : _SOURCES]
            return Directive._make((*shared[:_TARGET], *own, *between, sources))
        publishes = node == self.persistence.publisher
        return shared._replace(
            absent_ranks=orders.absent.ranks if publishes else (),
            absent_step=orders.absent.step if publishes else None,
            replica_target=target,
            collector=collector,
            publish=orders.publish if publishes else None,
            persist_replicas=orders.stand_ins.get(node, ()),
            sources=orders.replication.begun_from if node == keeps else (),
            # One terminal of a job is told: those of thousands of nodes show the same.
            cadence_reason=orders.cadence.reason if first else "",
            replica_sources=sources,
        )


# Where in a directive is what differs between nodes without a task of their own.
_TARGET, _SOURCES = map(Directive._fields.index, ("replica_target", "replica_sources"))


def _keepers(directed: DirectedGeneration, replication: Replication) -> tuple[str, ...]:
    keeper = replication.keeper
    return (*directed.members, keeper) if keeper else directed.members


def _missing_holders(asked: ChooseRecoveryStep, catalogue: Catalogue, state: State) -> list[str]:
    """Return the nodes that have still to tell what they hold."""
    needed = dict.fromkeys(asked.others, 0) | dict.fromkeys(asked.holders, asked.settled_generation)
    nodes, job = state.nodes, state.job(asked.job)
    # A node that has booted since it was asked holds nothing any more that could settle.
    left = {} if job is None else job.lineage.holders
    return [
        name
        for name, generation in needed.items()
        if name in left
        and not nodes[name].unreachable
        and catalogue.settled(name) < min(generation, left[name])
    ]


def _without(missing: Collection[str]) -> str:
    """Return who was not waited for, as the end of a sentence."""
    shown = ", ".join(sorted(missing)[:_NAMED_MAX])
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    return f"; {shown}{more} did not tell in time what they hold" if missing else ""


class Message(NamedTuple):
    """Message for people about a job's snapshots."""

    reason: str
    sentence: str


@dataclass(slots=True)
class VaultNews:
    """News of one job that were sent already, so that each is sent once."""

    # The parts of which generation's state.
    layouts: tuple[int, tuple[str, ...]] = (-1, ())
    # Of which generation people know that ranks save different bytes under one name.
    differing: int = -1
    # The last sentence about storage.
    not_stored: str = ""

    def since(
        self, decision: Decision, snapshots: JobSnapshots, job: JobRecord
    ) -> Iterator[Event | Message]:
        """Yield what a decision made new: events for the core, messages for people."""
        before, orders = decision.before, snapshots.orders
        keeper = orders.replication.keeper
        if keeper not in ("", before.replication.keeper):
            yield KeeperChosen(job.id, keeper)
        for guard in sorted(orders.guards.orders.keys() - before.guards.orders.keys()):
            yield KeeperChosen(job.id, guard)
        if orders.recoverable.step != before.recoverable.step or not snapshots.generation.parts:
            yield from self._tell_parts(snapshots)
            yield from self._tell_differing(snapshots, job)
        if orders.cadence is not before.cadence:
            yield CadenceChosen(job.id, orders.cadence)
            yield Message("SnapshotCadence", f"{job.name}: {orders.cadence.reason}")
        yield from self._tell_storage(snapshots, job, decision.inputs)

    def _tell_parts(self, snapshots: JobSnapshots) -> Iterator[Event]:
        directed = snapshots.generation
        layouts = snapshots.holdings.catalogue.layouts(directed.number, directed.world_size)
        news = directed.parts != frozenset(layouts) and self.layouts != (directed.number, layouts)
        if layouts and news:
            self.layouts = (directed.number, layouts)
            yield LayoutLearned(snapshots.job, directed.number, layouts=layouts)

    def _tell_differing(self, snapshots: JobSnapshots, job: JobRecord) -> Iterator[Message]:
        """Tell it once a generation: the loss of a node could cost a rank what only it had."""
        step, number = snapshots.orders.recoverable.step, snapshots.generation.number
        if step is None or self.differing == number:
            return
        ranks = snapshots.holdings.catalogue.differing(number, step)
        if ranks is not None:
            self.differing = number
            yield Message("SnapshotsDiffer", _differing(job.name, step, *ranks))

    def _tell_storage(
        self, snapshots: JobSnapshots, job: JobRecord, inputs: PersistenceInput
    ) -> Iterator[Event | Message]:
        persistence = snapshots.persistence
        newest = max(persistence.failures, default=None)
        sentence = "" if newest is None else persistence.failures[newest]
        if newest is not None and sentence and sentence != self.not_stored:
            yield Message("NotStored", f"step {newest[1]}: {sentence}")
        self.not_stored = sentence
        known_ns = job.snapshot_costs.storing_ns
        if abs(persistence.storing_ns - known_ns) > known_ns * _STORING_CHANGE:
            yield StoringMeasured(job.id, persistence.storing_ns)
        if job.state is JobState.CLOSING and (over := persistence.last_step_settled(inputs)):
            yield FinalSaveEnded(
                job.id, job.generation.number, over, persistence.last_step_missed(inputs)
            )


def _differing(job: str, step: int, one: int, other: int) -> str:
    return (
        f"{job}: ranks {one} and {other} saved different bytes of step {step} under the same "
        "names. Each gets its own back while a copy of it is left, and any of them after that or "
        "in another number of ranks: put the rank in the name of what is a rank's own"
    )
