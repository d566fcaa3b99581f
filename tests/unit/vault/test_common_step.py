"""A common step always exists: slots, replicas and the controller's catalogue, in any schedule."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable
from everstep_agent.vault.snapshots.slots import (
    SlotEvent,
    SlotState,
    SlotTable,
    SnapshotSlot,
    told_as_passed,
)
from everstep_common.rank_messages import Commit, Entry
from everstep_common.reports import PassedStep
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Question, choose_step

_SHARD = (Entry("w", 0, 10),)
_KINDS = ("train", "verify", "replicate", "report", "direct", "store")


@dataclass
class Node:
    """One node with one rank: what it holds, and what the controller told it last."""

    rank: int
    table: SlotTable
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(1))
    replicas: set[CopyKey] = field(default_factory=set)
    sent: set[CopyKey] = field(default_factory=set)
    on_disk: set[CopyKey] = field(default_factory=set)
    # The next step to train; each either saved or skipped.
    next_step: int = 0

    @property
    def name(self) -> str:
        return f"node-{self.rank}"

    def verified(self) -> list[CopyKey]:
        slots = [slot for slot in self.table.slots if slot.state is SlotState.VERIFIED]
        return sorted(self.table.copy_key(slot) for slot in slots)

    def copies(self) -> list[Copy]:
        own = [(key, False) for key in self.verified()]
        return [
            Copy(self.name, 1, key.rank, key.step, replica, "00", 10, f"part-{key.rank}")
            for key, replica in own + [(key, True) for key in self.replicas]
        ]

    def passed(self) -> list[PassedStep]:
        step = told_as_passed(self.table.left_out, self.table.slots)
        return [] if step is None else [PassedStep(1, self.rank, step)]

    def storing(self) -> list[CopyKey]:
        """Return what is to be stored, as far as the node has heard of it."""
        named = self.recoverable.storing
        return [
            key for key in self.verified() if (1, key.step) in named and key not in self.on_disk
        ]

    def verify_oldest(self) -> None:
        waiting = [slot for slot in self.table.slots if slot.state is SlotState.COMMITTED]
        if waiting:
            oldest = min(waiting, key=lambda slot: slot.step)
            self.table.mark_verified(oldest, oldest.epoch, b"h")


@dataclass(frozen=True)
class Shape:
    """A job: its nodes, its slots, how far ranks run apart, and a rank that stops saving."""

    nodes: int
    slots: int = 3
    # Steps that the fastest rank may be ahead: collectives hold all of them within a few.
    skew: int = 0
    every: int = 1
    # From this step on, the last rank saves nothing any more (its library gave up).
    silent_from: int | None = None
    # A rank without a free slot waits for one; else it skips the step.
    waits: bool = False
    # Recoverable steps that are multiples of this go to storage; 0: none.
    stores: int = 0
    # Agents tell which steps their ranks have left out.
    tells: bool = True

    def gives_up(self, rank: int, step: int) -> bool:
        quiet = self.silent_from is not None and step >= self.silent_from
        return quiet and rank == self.nodes - 1


class Job:
    """A job of one rank per node, whose collectives hold the ranks close to each other."""

    def __init__(self, shape: "Shape") -> None:
        nodes, epochs = shape.nodes, itertools.count(1).__next__
        tables = [
            SlotTable(1, rank, 10, [SnapshotSlot(index) for index in range(shape.slots)], epochs)
            for rank in range(nodes)
        ]
        self.shape = shape
        self.nodes = [Node(rank, table) for rank, table in enumerate(tables)]
        self.catalogue = Catalogue()
        self.committed: dict[int, set[int]] = {}
        self.newest_told = -1
        self.named: set[int] = set()
        self.dead: tuple[int, ...] = ()

    def do(self, kind: str, node: Node) -> None:
        getattr(self, f"_{kind}")(node)

    def _train(self, node: Node) -> None:
        step = node.next_step
        if step > min(other.next_step for other in self.nodes) + self.shape.skew:
            return
        if step % self.shape.every or self.shape.gives_up(node.rank, step):
            node.next_step += 1
            return
        grant = node.table.begin_step(step, node.recoverable)
        node.next_step += grant is not None or not self.shape.waits
        if grant is None:
            if not self.shape.waits:
                node.table.leave_out(step)
            return
        node.table.commit(Commit(step, grant.slot, grant.epoch, _SHARD))
        self.committed.setdefault(step, set()).add(node.rank)

    def _verify(self, node: Node) -> None:
        node.verify_oldest()

    def _replicate(self, node: Node) -> None:
        due = [
            key
            for key in node.verified()
            if key not in node.sent and not node.recoverable.frees(key)
        ]
        target = self.nodes[(node.rank + 1) % len(self.nodes)]
        if due:
            node.sent.add(due[0])
            if not target.recoverable.frees(due[0], replica=True):
                target.replicas.add(due[0])

    def _report(self, node: Node) -> None:
        self.catalogue.replace(node.name, node.copies(), 0)
        if self.shape.tells:
            self.catalogue.record_passed(node.passed())

    def _direct(self, node: Node) -> None:
        members = [other.name for other in self.nodes]
        found = self.catalogue.recoverable(1, members, len(members), (), self.dead)
        self.dead = found.dead_steps
        self.newest_told = max(self.newest_told, -1 if found.step is None else found.step)
        if self.shape.stores and found.step is not None and found.step % self.shape.stores == 0:
            self.named.add(found.step)
        node.recoverable = Recoverable(
            1,
            found.step,
            frozenset(found.dead_steps),
            frozenset((1, step) for step in self.named),
            frozenset(node.on_disk),
        )
        for slot in node.table.slots:
            if node.table.is_reusable(slot, node.recoverable):
                slot.apply(SlotEvent.FREED)
        node.replicas = {
            key for key in node.replicas if not node.recoverable.frees(key, replica=True)
        }

    def _store(self, node: Node) -> None:
        """Storage is slow: one copy at a time."""
        for key in node.storing()[:1]:
            node.on_disk.add(key)

    def whole_steps(self, without: Node | None) -> set[int]:
        """Return the steps that the other nodes hold of every rank."""
        held = [
            key
            for node in self.nodes
            if node is not without
            for key in (*node.verified(), *node.replicas)
        ]
        ranks = {key.step: {k.rank for k in held if k.step == key.step} for key in held}
        return {step for step, of in ranks.items() if len(of) == len(self.nodes)}

    def stop(self) -> int | None:
        """Let everything settle, as a stop does; return the step that is chosen."""
        for node in self.nodes:
            for _ in node.table.slots:
                node.verify_oldest()
            self._report(node)
        reachable = {node.name: "address" for node in self.nodes}
        branch = [BranchPoint(1, None, len(self.nodes))]
        return choose_step(self.catalogue, Question(branch, reachable, expected=False)).step


@dataclass(frozen=True)
class Pace:
    """How often things happen, by node: slow peers, late reports, directives that lag."""

    seed: int
    weights: tuple[tuple[int, ...], ...]

    def play(self, job: Job) -> Iterator[None]:
        """Let a few hundred things happen, one by one."""
        random = Random(self.seed)
        ways = [(kind, node) for node in job.nodes for kind in _KINDS]
        weights = [w for node in job.nodes for w in self.weights[node.rank]]
        for kind, node in random.choices(ways, weights, k=1_000):
            job.do(kind, node)
            yield


_Weights = st.tuples(*[st.sampled_from((1, 5, 20))] * len(_KINDS))
_Pace = st.builds(Pace, st.integers(0, 1 << 30), st.tuples(*[_Weights] * 4))
_Shape = st.builds(
    Shape,
    nodes=st.integers(2, 4),
    slots=st.integers(2, 5),
    skew=st.integers(0, 3),
    every=st.sampled_from((1, 1, 3)),
    silent_from=st.sampled_from((None, None, 4, 12)),
    waits=st.booleans(),
    stores=st.sampled_from((0, 2, 5)),
    tells=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(_Shape, _Pace)
def test_what_was_told_as_recoverable_survives_the_loss_of_any_node(
    shape: Shape, pace: Pace
) -> None:
    job = Job(shape)
    for _ in pace.play(job):
        if job.newest_told >= 0:
            for lost in job.nodes:
                assert max(job.whole_steps(without=lost), default=-1) >= job.newest_told
    event(f"{min(job.newest_told // 10, 3)}0 steps or more were recoverable")
    event(f"{shape.slots} slots, silent: {shape.silent_from is not None}")


@settings(max_examples=100, deadline=None)
@given(_Shape, _Pace, st.integers(0, 999))
def test_after_a_stop_the_newest_step_that_all_committed_is_restored(
    shape: Shape, pace: Pace, stops_after: int
) -> None:
    job = Job(shape)
    for _ in itertools.islice(pace.play(job), stops_after):
        pass
    common = [step for step, ranks in job.committed.items() if len(ranks) == shape.nodes]
    assert job.stop() == max(common, default=None)


@settings(max_examples=60, deadline=None)
@given(_Shape, _Pace)
def test_a_common_step_moves_on_while_all_ranks_save(shape: Shape, pace: Pace) -> None:
    """Nothing waits for itself: with all done that is due, a newer step becomes recoverable.

    Two slots are enough only for ranks that wait, or whose agents tell what they leave out: else
    two that skip could save the even and the odd steps in turn, for as long as they keep the same
    pace.
    """
    waits = shape.waits or (shape.slots == 2 and not shape.tells)
    job = Job(replace(shape, silent_from=None, waits=waits))
    for _ in pace.play(job):
        pass
    before = job.newest_told
    for _ in range(4 * shape.every + shape.skew):
        for kind in _KINDS * 4:
            for node in job.nodes:
                job.do(kind, node)
    assert job.newest_told > before


@settings(max_examples=60, deadline=None)
@given(_Shape, _Pace)
def test_a_step_on_its_way_to_storage_stays_until_it_is_there(shape: Shape, pace: Pace) -> None:
    job = Job(replace(shape, stores=shape.stores or 2))
    owed: dict[str, set[CopyKey]] = {node.name: set() for node in job.nodes}
    for _ in pace.play(job):
        for node in job.nodes:
            owed[node.name] |= set(node.storing())
            assert owed[node.name] <= node.on_disk | set(node.verified())


class _Hasty(Node):
    """An agent that tells of what was left out although older copies are not verified yet."""

    def passed(self) -> list[PassedStep]:
        left_out = self.table.left_out
        return [] if left_out < 0 else [PassedStep(1, self.rank, left_out)]


def _survives(job: Job) -> bool:
    return all(
        max(job.whole_steps(without=lost), default=-1) >= job.newest_told for lost in job.nodes
    )


def _play(job: Job, nodes: Sequence[Node], *kinds: str) -> None:
    for kind, node in itertools.product(kinds, nodes):
        job.do(kind, node)


@pytest.mark.parametrize(
    ("hasty", "forgets", "newest", "survives"),
    [
        # What is told waits for older copies, so 1 is not dead at any time.
        (False, True, 1, True),
        (False, False, 1, True),
        # Told too early, a step stays dead in which others have freed it already.
        (True, False, 0, True),
        # Without both, what was recoverable is freed for a step that is not there any more.
        (True, True, 1, False),
    ],
)
def test_a_step_that_was_called_dead_too_early_never_takes_the_place_of_the_recoverable_one(
    hasty: bool, forgets: bool, newest: int, survives: bool
) -> None:
    job = Job(Shape(nodes=3, slots=2))
    if hasty:
        job.nodes[:] = [_Hasty(node.rank, node.table) for node in job.nodes]
    one, slow, third = job.nodes
    _play(job, job.nodes, "train", "verify", "replicate", "report", "direct", "report", "direct")
    assert job.newest_told == 0
    # All but the second have 1, also on the next node; that one has committed it, and leaves 2 out.
    _play(job, job.nodes, "train")
    _play(job, (one, third), "verify", "replicate", "report")
    _play(job, (one, slow), "train")
    assert slow.table.left_out == 2
    _play(job, (slow, one), "report")
    _play(job, (one,), "direct")
    if forgets:
        job.dead = ()
    _play(job, (slow,), "verify", "replicate", "report")
    _play(job, (third,), "report")
    _play(job, (slow,), "direct")
    assert job.newest_told == newest
    assert _survives(job) == survives
