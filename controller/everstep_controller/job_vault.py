"""What is known of one job's snapshots, and what the vaults of its nodes shall do."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.events import StepRecoverable
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.lineage import ShardSource
from everstep_controller.core.model.snapshot_costs import Cadence
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.cadence import decide
from everstep_controller.core.vault.catalogue import Catalogue, Recoverable
from everstep_controller.core.vault.persisting import Persisting, Publish, Sight, stand_ins, stops
from everstep_controller.core.vault.snapshot_numbers import View
from everstep_controller.prefetching import Ahead, look_ahead
from everstep_controller.replica_ring import replica_targets
from everstep_controller.spares import SpareMemory, copy_bytes_max, keeper_of, spares_of
from everstep_controller.vault_messages import Directive, Report, Standbys


@dataclass(slots=True)
class JobVault:
    """The catalogue of a job, its ring, and what was decided about its snapshots."""

    job: str
    catalogue: Catalogue = field(default_factory=Catalogue)
    holders: set[str] = field(default_factory=set)
    # The generation that runs or ran last: its ring stays until the next one starts.
    generation: int = 0
    members: tuple[str, ...] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    # Nodes with memory for the replicas of one member only; and those that the ring was made with.
    short: set[str] = field(default_factory=set)
    ring_short: frozenset[str] = frozenset()
    world_size: int = 0
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(None, ()))
    # The parts of a whole state of this generation, as the journal has them.
    learned: frozenset[str] = frozenset()
    # What the journal was told of them, and of which generation.
    layouts_told: tuple[int, tuple[str, ...]] = (-1, ())
    # Of which generation people were told that ranks save different bytes under one name.
    differing_told: int = -1
    choice: ChooseRecoveryStep | None = None
    refresh_waits: bool = False
    sent: dict[str, Directive] = field(default_factory=dict)
    persisting: Persisting = field(default_factory=Persisting)
    publish: Publish | None = None
    # Who persists the replicas of ranks whose own node cannot.
    stand_ins: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    cadence: Cadence = field(default_factory=Cadence)
    # Nodes that wait as spares and hold nothing yet; what each shall have ready, once it is known.
    spares: frozenset[str] = frozenset()
    spare_memory: SpareMemory | None = None
    # Spares that fetch ahead for a silent member.
    ahead: Mapping[str, Ahead] = field(default_factory=dict)
    # The spare that keeps the replicas of a job on one node; empty where members keep them.
    keeper: str = ""
    # What the generation began from, for the keeper, which no plan tells.
    begun_from: tuple[ShardSource, ...] = ()
    standbys: dict[str, Standbys] = field(default_factory=dict)
    bad_copies: int = 0
    hold_after: int | None = None
    # Somebody looks soon whether the core knows what is recoverable.
    telling: bool = False
    # The last sentence about storage that people were told.
    told: str = ""

    def take(self, node: str, report: Report) -> None:
        """Take a node's report."""
        self.catalogue.take(node, report.copies, report.settled_generation, report.news)
        self.catalogue.store(node, report.stored)
        (self.holders.add if report.copies else self.holders.discard)(node)
        (self.short.add if report.replicas_short else self.short.discard)(node)
        self.stand_by(node, report.standbys)
        self.bad_copies += report.bad_copies
        for key, reason in report.failures:
            self.persisting.failures[key] = reason

    def stand_by(self, node: str, standbys: Standbys | None) -> None:
        """Know what waits on a node; None: nothing does."""
        if standbys is None:
            self.standbys.pop(node, None)
        else:
            self.standbys[node] = standbys

    def forget(self, node: str) -> None:
        """A node is lost, with all that it held."""
        self.stand_by(node, None)
        self.catalogue.forget(node)
        self.holders.discard(node)
        self.short.discard(node)

    def end(self) -> None:
        """The job is over: what is left is what nodes keep of it, and nobody is told to do more."""
        self.members, self.recoverable = (), Recoverable(None, ())
        self.persisting, self.publish, self.choice = Persisting(), None, None
        self.cadence, self.bad_copies = Cadence(), 0
        self.sent.clear()

    def adopt_plan(self, record: JobRecord, state: State) -> bool:
        """Take over the ring of a generation that was started; return whether it is another."""
        runs = record.state in ACTIVE or record.state is JobState.STOPPING
        if not runs or record.generation == self.generation:
            return False
        self.generation, self.members = record.generation, tuple(record.members)
        self.world_size = record.world_size
        self._make_ring(state)
        self.spare_memory, self.keeper = None, ""
        return True

    def adopt_cadence(self, record: JobRecord) -> None:
        """Go on with what was decided before a restart."""
        if record.cadence.changed_ns > self.cadence.changed_ns:
            self.cadence = record.cadence

    def refresh(self, record: JobRecord, state: State, now_ns: int) -> None:
        """Decide anew what is recoverable, persisted and snapshotted."""
        self._learn(record)
        if self.short != self.ring_short and len(self.members) > 1:
            self._make_ring(state)
        self._look_for_keeper(record, state)
        self.recoverable = self.catalogue.recoverable(
            self.generation, self._keepers(), self.world_size, self.learned
        )
        self.cadence = decide(self.cadence, record, state.settings, now_ns)
        sight = self.sight(record, state, now_ns)
        self.publish = self.persisting.look(sight)
        wish = record.planned
        held = wish is not None and record.generation == self.generation
        self.hold_after = wish.after_step if wish is not None and held else None
        self._look_ahead(record, state)
        self._look_for_spares(record)
        # Every member that is there persists its own ranks.
        away = len(sight.connected) < len(self.members)
        self.stand_ins = stand_ins(sight, self.persisting.named) if away else {}

    def directed(self) -> set[str]:
        """Return the nodes that are told what to do."""
        return self.holders.union(self._keepers(), self.spares, self.ahead)

    def _look_ahead(self, record: JobRecord, state: State) -> None:
        ahead = look_ahead(record, state, self.catalogue)
        if not ahead and record.state not in ACTIVE:
            # What is fetched may be what the plan will want, but of who has left the job.
            ahead = {name: one for name, one in self.ahead.items() if name in record.launchers}
        self.ahead = ahead

    def _keepers(self) -> tuple[str, ...]:
        return (*self.members, self.keeper) if self.keeper else self.members

    def _make_ring(self, state: State) -> None:
        domains = {name: node.domain for name, node in state.nodes.items()}
        self.ring_short = frozenset(self.short)
        self.targets = replica_targets(self.members, domains, self.ring_short)

    def _look_for_keeper(self, record: JobRecord, state: State) -> None:
        # While it stops, nothing is freed that was kept while it ran.
        runs = record.generation == self.generation and record.state in ACTIVE
        if len(self.members) == 1 and runs:
            self.keeper = keeper_of(record, state, self.keeper, self.holders)
            self.targets = {self.members[0]: self.keeper} if self.keeper else {}
            self.begun_from = record.sources

    def _look_for_spares(self, record: JobRecord) -> None:
        waiting = spares_of(record).difference(self.holders, (self.keeper,))
        if (waiting or self.ahead) and self.spare_memory is None:
            # Looked at once for each generation: it is every copy of a step.
            copies = self.catalogue.steps(self.generation).get(self.recoverable.step or 0)
            if copies is not None and self.recoverable.step is not None:
                size = copy_bytes_max(copies)
                self.spare_memory = SpareMemory(size, record.processes_per_node)
        if self.spare_memory is None:
            # Without it, what a spare would be told is what members are told.
            waiting, self.ahead = frozenset(), {}
        self.spares = waiting

    def sight(self, record: JobRecord, state: State, now_ns: int) -> Sight:
        """Return what the bringing to storage is decided from."""
        connected = [name for name in self.members if state.nodes[name].connected]
        step = self.recoverable.step
        if stops(record):
            # A node that is lost has taken second copies with it: what is whole is worth saving.
            alone = self.catalogue.recoverable(self.generation, (), self.world_size, self.learned)
            step = alone.step
        return Sight(
            record, self.generation, self.world_size, self.catalogue, step, connected, now_ns
        )

    def view(
        self, record: JobRecord, state: State, reachable: Mapping[str, str], now_ns: int
    ) -> View:
        """Return what the table of snapshots is made from."""
        return View(
            record,
            self.catalogue,
            reachable,
            self.recoverable.step,
            self.persisting,
            self.cadence,
            self.bad_copies,
            state.settings.probation_steps,
            now_ns,
        )

    def _learn(self, record: JobRecord) -> None:
        points = [p for p in record.branch if p.generation == self.generation]
        layouts: Collection[str] = points[-1].layouts if points else ()
        if len(layouts) != len(self.learned) or not self.learned.issuperset(layouts):
            self.learned = frozenset(layouts)

    def unlearned(self) -> tuple[str, ...]:
        """Return the parts of a whole state when they are not those that the journal has."""
        layouts = self.catalogue.layouts(self.generation, self.world_size)
        return () if self.learned == frozenset(layouts) else layouts

    def untold(self, record: JobRecord) -> StepRecoverable | None:
        """Return what is recoverable in the generation that runs, if the core does not know it."""
        step = self.recoverable.step
        known = record.generation != self.generation or record.recoverable_step == step
        if step is None or known or record.state not in ACTIVE:
            return None
        return StepRecoverable(self.job, self.generation, step)

    def waits_for(self, step: int) -> bool:
        """Return whether a restart is planned for when this step is recoverable."""
        return self.hold_after is not None and self.hold_after <= step

    def directive(self, node: str) -> Directive:
        """Return what the vault of a node shall do."""
        memory, ahead = self.spare_memory, self.ahead.get(node)
        if memory is not None and (ahead is not None or node in self.spares):
            return Directive(self.job, self.generation, None, (), "", spare=memory, ahead=ahead)
        return Directive(
            self.job,
            self.generation,
            self.recoverable.step,
            self.recoverable.dead_steps,
            self.targets.get(node, ""),
            tuple(self.persisting.named) if self.publish is not None else (),
            self.publish if node == self.persisting.publisher else None,
            self.cadence.every,
            self.cadence.start,
            self.stand_ins.get(node, ()),
            hold_after=self.hold_after,
            sources=self.begun_from if node == self.keeper else (),
        )
