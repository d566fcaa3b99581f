"""Recovery step of a job: the newest complete step of its branch, and the copies of it."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_

from everstep_common.orders import ShardSource
from everstep_common.reports import StoredStep
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.snapshots import BranchPoint, StepKey
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, Parts, StepCopies, Tier

# Tiers that hold the last steps; shared storage may be many steps behind.
_NEAR = ("memory", "local disk")


@dataclass(frozen=True, slots=True)
class Question:
    """Question to the catalogue: what is to be restored, and from where it could be."""

    branch: Sequence[BranchPoint]
    # Nodes that answer, to the address of their bulk listener.
    reachable: Mapping[str, str]
    # The job has had a snapshot: then finding none is a loss, not a fresh start.
    expected: bool
    # States that the job has crashed from again and again.
    avoided: Collection[StepKey] = ()
    # Steps in storage that are known from elsewhere than the nodes' reports.
    stored: Sequence[StoredStep] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """Answer of the catalogue: the step and where each part of it is, or why there is none."""

    step: int | None
    sources: tuple[ShardSource, ...]
    lost: str
    reason: str
    # The generation that made it, and what there is of it in storage.
    generation: int = 0
    stored: StoredStep | None = None
    # The best tier that has all of it.
    tier: str = ""


@dataclass(frozen=True, slots=True)
class RestorableStep:
    """A step that could be restored."""

    generation: int
    step: int
    stored: StoredStep | None
    # Its tier: the best one that has it completely.
    tier: str
    # Ranks that lost what was only theirs, and take what others have.
    replaced: tuple[int, ...] = ()

    @property
    def key(self) -> StepKey:
        """Return what the state is called."""
        return (self.generation, self.step)


@dataclass(frozen=True, slots=True)
class PickedStep:
    """Chosen step with the sentence why, or why there is none."""

    candidate: RestorableStep | None
    reason: str
    lost: str = ""


def question_of(action: ChooseRecoveryStep, reachable: Mapping[str, str]) -> Question:
    """Return what the catalogue is asked on behalf of the core."""
    return Question(
        action.branch,
        reachable,
        action.expected,
        action.avoided,
        action.stored,
    )


def reachable_nodes(state: State, catalogue: Catalogue) -> dict[str, str]:
    """Return who answers of the nodes in a catalogue, and the addresses of their bulk listeners."""
    known = (state.nodes[name] for name in catalogue.nodes if name in state.nodes)
    return {
        node.name: node.spec.bulk_address
        for node in known
        if node.liveness.connected and node.spec.bulk_address and not node.unreachable
    }


def choose_step(catalogue: Catalogue, question: Question) -> Choice:
    """Return the newest step of the branch that can be reached completely, and where it is."""
    picked = pick_step(catalogue, question)
    found = picked.candidate
    if found is None:
        return Choice(None, (), picked.lost, picked.reason)
    held = catalogue.steps(found.generation).get(found.step, StepCopies()).ordered()
    sources = _sources(held, question.reachable)
    return Choice(
        found.step, sources, "", picked.reason, found.generation, found.stored, found.tier
    )


def pick_step(catalogue: Catalogue, question: Question) -> PickedStep:
    """Return the step that is to be restored, with its sentence."""
    found, avoided = find_newest(catalogue, question)
    if found is not None and found is not avoided:
        return PickedStep(found, _why(found, avoided, catalogue, question))
    if found is not None:
        sentence = f"step {found.step} again, for no older one is left; {_bad(found)}"
        return PickedStep(found, sentence)
    if not question.expected:
        return PickedStep(None, "none was committed yet")
    return PickedStep(None, "no step is complete", _what_is_missing(catalogue, question))


def find_newest(
    catalogue: Catalogue, question: Question
) -> tuple[RestorableStep, RestorableStep | None] | tuple[None, None]:
    """Return the newest step of the branch that can be reached completely, and one passed over.

    The newest step wins over every tier; of the same step, memory is taken before disk, and disk
    before storage. A state in which ranks take what others have gives way to one that agents hold
    of every rank, as when a rank stopped before the others. A state that is avoided is taken only
    when there is no other: then both are it.
    """
    avoided = newest = None
    for candidate in restorable_steps(catalogue, question):
        if candidate.key in question.avoided:
            avoided = avoided or candidate
        elif not candidate.replaced and (newest is None or candidate.tier in _NEAR):
            return candidate, avoided
        else:
            newest = newest or candidate
    chosen = newest or avoided
    return (None, None) if chosen is None else (chosen, avoided)


def restorable_steps(catalogue: Catalogue, question: Question) -> Iterator[RestorableStep]:
    """Yield the steps of the branch that could be restored, newest first."""
    stored = readable_steps(catalogue, question)
    points = {point.generation: point for point in question.branch}
    held = {(number, step) for number in points for step in catalogue.steps(number)}
    on_branch = [
        key for key in held | stored.keys() if key[0] in points and points[key[0]].has(*key)
    ]
    away = catalogue.away(question.reachable)
    # A generation that started over, without a step to restore, begins at the lowest step again.
    for key in sorted(on_branch, key=lambda key: (key[1], key[0]), reverse=True):
        if tier := _tier(points[key[0]], catalogue, key, away):
            replaced = () if key in stored else _replaced(points[key[0]], catalogue, key, away)
            yield RestorableStep(*key, stored.get(key), tier, replaced)
        elif key in stored:
            yield RestorableStep(*key, stored[key], "shared storage")


def readable_steps(catalogue: Catalogue, question: Question) -> dict[StepKey, StoredStep]:
    """Return the steps in storage that some node can read.

    That one can is enough: a folder that others do not have gets no manifest, so no complete step.
    """
    found = {step.key: step for step in question.stored}
    for key, readers in catalogue.stored().items():
        if any(node in question.reachable for node in readers):
            found[key] = next(iter(readers.values()))
    return found


def is_whole(point: BranchPoint, parts: Parts) -> bool:
    """Return whether these are all parts of a step: those of every rank, or all that were learned.

    Equal copies count for the ranks that lack one; a part that was not learned says that another
    world wrote it, whose other parts nobody knows.
    """
    if 0 < point.world_size <= len(parts.ranks):
        return True
    return 0 < len(point.layouts) == len(parts.layouts) and parts.layouts == set(point.layouts)


def missing_parts(point: BranchPoint, parts: Parts) -> list[str]:
    """Name what these parts lack of a complete step."""
    if is_whole(point, parts):
        return []
    absent = [f"rank {rank}" for rank in range(point.world_size) if rank not in parts.ranks]
    if point.layouts and parts.layouts <= set(point.layouts):
        lost = set(point.layouts) - parts.layouts
        # Where each rank has a part of its own, people know the part by its rank.
        whose = len(lost) == len(absent)
        return absent if whose else [f"part {layout[:8]}" for layout in sorted(lost)]
    return absent or ["a rank"]


def _tier(point: BranchPoint, catalogue: Catalogue, key: StepKey, away: Set[str]) -> str:
    """Return the best tier that has the complete step, together with those before it, or ''."""
    if key[1] not in catalogue.steps(key[0]):
        return ""
    if is_whole(point, catalogue.parts(key, away, files=False)):
        return "memory"
    return "local disk" if is_whole(point, catalogue.parts(key, away, files=True)) else ""


def _replaced(
    point: BranchPoint, catalogue: Catalogue, key: StepKey, away: Set[str]
) -> tuple[int, ...]:
    step = catalogue.steps(key[0])[key[1]]
    if not step.memory.replaceable and not step.files.replaceable:
        return ()
    ranks = catalogue.parts(key, away, files=True).ranks
    return tuple(rank for rank in range(point.world_size) if rank not in ranks)


def _why(
    candidate: RestorableStep,
    avoided: RestorableStep | None,
    catalogue: Catalogue,
    question: Question,
) -> str:
    held = catalogue.steps(candidate.generation).get(candidate.step, StepCopies())
    nodes = len(held.nodes() & question.reachable.keys())
    where = {
        "memory": "that is complete in the memory of "
        + ("one node" if nodes == 1 else f"{nodes} nodes"),
        "local disk": f"that is complete with the files on local disks of {_nodes(nodes)}",
        "shared storage": "that is complete in shared storage",
    }[candidate.tier]
    sentence = f"step {candidate.step} is the newest {where}"
    if candidate.replaced:
        sentence += f", but {len(candidate.replaced)} of the ranks lost what was theirs alone"
    return f"{sentence}; {_bad(avoided)}" if avoided else sentence


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"


def _bad(avoided: RestorableStep) -> str:
    step = avoided.step
    return f"the job called step {step} bad or crashed twice soon after step {step} was restored"


def _what_is_missing(catalogue: Catalogue, question: Question) -> str:
    if not question.branch:
        return "it has not started yet"
    point = question.branch[-1]
    away, ranks, layouts = catalogue.away(question.reachable), set[int](), set[str]()
    for step in catalogue.steps(point.generation):
        parts = catalogue.parts((point.generation, step), away, files=True)
        ranks |= parts.ranks
        layouts |= parts.layouts
    lacking = missing_parts(point, Parts(ranks, layouts))
    if not lacking:
        return "every part has a copy, but no step has all of them"
    shown = ", ".join(lacking[:5]) + (" …" if len(lacking) > 5 else "")
    return f"no reachable copy of {shown}"


def _sources(held: Sequence[Copy], reachable: Mapping[str, str]) -> tuple[ShardSource, ...]:
    """Return where the copies are that can be reached; by column, for large jobs have 200,000."""
    there = [copy for copy in held if copy[0] in reachable]
    if not there:
        return ()
    nodes, numbers, ranks, steps, _, roots, sizes, layouts, tiers, _ = zip(*there, strict=True)
    on_disk = map(is_, tiers, repeat(Tier.DISK))
    addresses = map(reachable.__getitem__, nodes)
    columns = (nodes, addresses, numbers, ranks, steps, roots, sizes, layouts, on_disk)
    return tuple(map(ShardSource, *columns))


# A job of so few copies tells all of them to everybody.
_ALL_MAX = 256

# Otherwise so many of each part: the best one, and others in case it turns out bad.
_OF_A_PART = 3


@dataclass(slots=True)
class RestoreSources:
    """The copies that a generation restores from, grouped once for all its members.

    All of them to each would be members times copies: 2,048 x 98,304 on the largest jobs. A rank
    of an unchanged world wants what the rank of its number had, so it is told of that rank's
    copies and of equal copies of the same parts. When the world has changed, the controller cannot
    know which parts a rank will ask for, and tells of every part: a few copies of each.
    """

    all: tuple[ShardSource, ...]
    # The ranks of each member; none when the world is not the one that the state is of.
    ranks: Mapping[str, range]
    members: Set[str]
    _of_rank: dict[int, list[ShardSource]] = field(default_factory=dict)
    # A few copies of each part.
    _of_part: dict[str, list[ShardSource]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        of_rank, of_part = (
            defaultdict[int, list[ShardSource]](list),
            defaultdict[str, list[ShardSource]](list),
        )
        for source in self.all:
            of_rank[source.rank].append(source)
            part = of_part[source.layout]
            if len(part) < _OF_A_PART:
                part.append(source)
        self._of_rank, self._of_part = dict(of_rank), dict(of_part)

    def of(self, node: str) -> tuple[ShardSource, ...]:
        """Return the copies that a member may restore from, best first."""
        if len(self.all) <= _ALL_MAX or node not in self.members:
            return self.all
        if not self.ranks:
            return self._of_every_part()
        return self._of(self.ranks[node])

    def _of_every_part(self) -> tuple[ShardSource, ...]:
        return tuple(source for part in self._of_part.values() for source in part)

    def _of(self, ranks: Sequence[int]) -> tuple[ShardSource, ...]:
        # By identity: to hash the fields of all copies of a large job takes 60 ms.
        if not all(rank in self._of_rank for rank in ranks):
            # Other ranks' copies stand in, and nobody here knows which.
            return self._of_every_part()
        own = [source for rank in ranks for source in self._of_rank[rank]]
        told = dict(zip(map(id, own), own, strict=True))
        for part in dict.fromkeys([source.layout for source in own]):
            for source in self._of_part[part]:
                told[id(source)] = source
        return tuple(told.values())


def group_sources(job: JobRecord) -> RestoreSources:
    """Return the copies that the current generation of a job restores from."""
    origin = job.lineage.restored[0] if job.lineage.restored else 0
    world_size = next((p.world_size for p in job.lineage.branch if p.generation == origin), 0)
    count = job.spec.processes_per_node
    ranks = {
        name: range(i * count, (i + 1) * count) for i, name in enumerate(job.generation.members)
    }
    return RestoreSources(
        job.generation.sources, ranks if world_size == job.world_size else {}, ranks.keys()
    )
