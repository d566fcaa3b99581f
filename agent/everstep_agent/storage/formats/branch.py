"""Branch of a job in storage: which stored steps its newest generation's state came from. Pure.

``began.json`` of a generation names the step that it went on from, and the last steps of the
generations before. A step of another branch never counts, however high its number is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_agent.storage.formats.records import Beginning, LatestPointer, StepKey
from everstep_common import quantities as q

_SILENT = "nothing says what it began from"


@dataclass(frozen=True, slots=True)
class GenerationFolder:
    """Folder of one generation: how it began, and the numbers of its steps."""

    beginning: Beginning | None = None
    # Why ``began.json`` is there and cannot be used; empty where it can, or is not there.
    problem: str = ""
    steps: Collection[int] = ()

    @property
    def began(self) -> bool:
        """Return whether anything was made by it but its folder."""
        return bool(self.beginning or self.problem or self.steps)


@dataclass(frozen=True, slots=True)
class StoredBranch:
    """Branch of the newest generation, newest first: steps of each up to the one that is named."""

    points: tuple[StepKey, ...] = ()
    # How many of the points are known; the others are guessed, for nobody has written them down.
    known: int = 0
    # Why nothing before the last known point is known; empty where all is.
    broken: str = ""
    # What should say it is there, and cannot be used.
    damaged: bool = False
    # The newest generation that has begun, and how it began where it says so.
    newest: int = 0
    beginning: Beginning | None = None
    # All of it began from scratch in this generation; 0: that is not known.
    scratch: int = 0

    def steps(self, folders: Mapping[int, GenerationFolder]) -> Iterator[tuple[StepKey, bool]]:
        """Yield the steps on it, newest first, each with whether that is known and not guessed."""
        for number, point in enumerate(self.points):
            there = folders.get(point.generation, GenerationFolder()).steps
            for step in sorted(there, reverse=True):
                if step <= point.step:
                    yield StepKey(point.generation, step), number < self.known


@dataclass(slots=True)
class _Walk:
    """Walk back along a branch, from its newest generation."""

    folders: Mapping[int, GenerationFolder]
    hint: Sequence[StepKey]
    points: list[StepKey] = field(default_factory=list)

    def follow(self, start: StepKey) -> int:
        """Go back as far as it is known; return where it began from scratch, 0 for not known."""
        self.points.append(start)
        while True:
            oldest = self.points[-1]
            folder = self.folders.get(oldest.generation, GenerationFolder())
            if folder.beginning is not None:
                if folder.beginning.parent is None:
                    return oldest.generation
                self._add(reversed(folder.beginning.lineage))
            elif before := [key for key in self.hint if key.generation < oldest.generation]:
                self._add([max(before)])
            else:
                return 0

    def guess(self) -> None:
        """Add all generations that are older than the known ones."""
        oldest = self.points[-1]
        older = (number for number in self.folders if number < oldest.generation)
        self._add(StepKey(number, oldest.step) for number in sorted(older, reverse=True))

    def _add(self, keys: Iterable[StepKey]) -> None:
        """Add older points; none reaches beyond a newer one."""
        for key in keys:
            self.points.append(StepKey(key.generation, min(key.step, self.points[-1].step)))


def find_branch(
    folders: Mapping[int, GenerationFolder], latest: LatestPointer | None
) -> StoredBranch:
    """Return the branch of the newest generation that has begun.

    ``latest`` says it where ``began.json`` does not, as that of a version before it, if the newest
    generation has written it.
    """
    told = latest is not None and latest.target is not None and latest.generation in folders
    newest = next((number for number in sorted(folders, reverse=True) if folders[number].began), 0)
    if told and latest is not None:
        newest = max(newest, latest.generation)
    if not newest:
        return StoredBranch()
    hint: list[StepKey] = []
    if told and latest is not None and latest.target is not None and latest.generation == newest:
        hint = [*latest.older, latest.target]
    walk = _Walk(folders, hint)
    scratch = walk.follow(StepKey(newest, q.TOLD_MAX))
    oldest, known = walk.points[-1].generation, len(walk.points)
    problem = folders.get(oldest, GenerationFolder()).problem
    if not scratch:
        walk.guess()
    return StoredBranch(
        points=tuple(walk.points),
        known=known,
        broken="" if scratch else f"generation {oldest}: {problem or _SILENT}",
        damaged=bool(problem),
        newest=newest,
        beginning=folders[newest].beginning,
        scratch=scratch,
    )
