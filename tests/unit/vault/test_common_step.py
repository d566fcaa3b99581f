"""A common step always exists: slots, replicas and the controller's catalogue, in any schedule."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from everstep_agent.vault.copies import CopyKey, Recoverable
from everstep_agent.vault.slots import Slot, SlotEvent, SlotState, SlotTable
from everstep_common.trainer_messages import Commit, Entry
from everstep_controller.core.catalogue import Catalogue, Copy
from everstep_controller.core.facts import BranchPoint

_SHARD = (Entry("w", 0, 10),)
_KINDS = ("train", "verify", "replicate", "report", "direct")


@dataclass
class Node:
    """One node with one rank: what it holds, and what the controller told it last."""

    rank: int
    table: SlotTable
    recoverable: Recoverable = field(default_factory=lambda: Recoverable(1))
    replicas: set[CopyKey] = field(default_factory=set)
    sent: set[CopyKey] = field(default_factory=set)
    # The next step to train; each either saved or skipped.
    next_step: int = 0

    @property
    def name(self) -> str:
        return f"node-{self.rank}"

    def verified(self) -> list[CopyKey]:
        slots = [slot for slot in self.table.slots if slot.state is SlotState.VERIFIED]
        return sorted(self.table.key(slot) for slot in slots)

    def copies(self) -> list[Copy]:
        own = [(key, False) for key in self.verified()]
        return [
            Copy(self.name, 1, key.rank, key.step, replica, "00", 10, (f"shard-{key.rank}",))
            for key, replica in own + [(key, True) for key in self.replicas]
        ]

    def verify_oldest(self) -> None:
        waiting = [slot for slot in self.table.slots if slot.state is SlotState.COMMITTED]
        if waiting:
            oldest = min(waiting, key=lambda slot: slot.step)
            self.table.verified(oldest, oldest.epoch, b"h")


class Job:
    """A job of one rank per node, whose collectives hold the ranks within one step."""

    def __init__(self, nodes: int) -> None:
        epochs = itertools.count(1).__next__
        tables = [
            SlotTable(1, rank, 10, [Slot(index) for index in range(3)], epochs)
            for rank in range(nodes)
        ]
        self.nodes = [Node(rank, table) for rank, table in enumerate(tables)]
        self.catalogue = Catalogue()
        self.committed: dict[int, set[int]] = {}
        self.newest_told = -1

    def do(self, kind: str, node: Node) -> None:
        getattr(self, f"_{kind}")(node)

    def _train(self, node: Node) -> None:
        step = node.next_step
        if step > min(other.next_step for other in self.nodes):
            return
        node.next_step += 1
        grant = node.table.begin(step, node.recoverable)
        if grant is None:
            return  # it waited for long enough: skipped
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
            if not target.recoverable.frees(due[0]):
                target.replicas.add(due[0])

    def _report(self, node: Node) -> None:
        self.catalogue.replace(node.name, node.copies(), 0)

    def _direct(self, node: Node) -> None:
        members = [other.name for other in self.nodes]
        found = self.catalogue.recoverable(1, members, len(members))
        self.newest_told = max(self.newest_told, -1 if found.step is None else found.step)
        node.recoverable = Recoverable(1, found.step, frozenset(found.dead_steps))
        for slot in node.table.slots:
            if node.table.reusable(slot, node.recoverable):
                slot.apply(SlotEvent.FREED)
        node.replicas = {key for key in node.replicas if not node.recoverable.frees(key)}

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
        return self.catalogue.choose(branch, reachable, expected=False).step


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


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), _Pace)
def test_what_was_told_as_recoverable_survives_the_loss_of_any_node(count: int, pace: Pace) -> None:
    job = Job(count)
    for _ in pace.play(job):
        if job.newest_told >= 0:
            for lost in job.nodes:
                assert max(job.whole_steps(without=lost), default=-1) >= job.newest_told
    event(f"{min(job.newest_told // 10, 3)}0 steps or more were recoverable")


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), _Pace, st.integers(0, 999))
def test_after_a_stop_the_newest_step_that_all_committed_is_restored(
    count: int, pace: Pace, stops_after: int
) -> None:
    job = Job(count)
    for _ in itertools.islice(pace.play(job), stops_after):
        pass
    common = [step for step, ranks in job.committed.items() if len(ranks) == count]
    assert job.stop() == max(common, default=None)
