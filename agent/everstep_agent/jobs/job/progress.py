"""Progress of a generation on one node: steps, phases and freshness over all local ranks. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_common.rank_messages import Paused, Progress
from everstep_common.reports import PauseKind, Phase, StepPause

# What the names of pauses begin with that are an evaluation or a save.
_EVALUATIONS = ("eval", "valid", "test")
_SAVES = ("checkpoint", "ckpt", "save", "persist")

# How many steps wait for the slowest rank: one that hangs must not make the agent's memory grow.
_PENDING_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StepRun:
    """Consecutive steps that every local rank completed (boot clock and durations in ns)."""

    first_step: int
    end_boot_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    # What ranks declared to be no step.
    pauses: tuple[StepPause, ...] = ()


def pause_kind(name: str) -> PauseKind:
    """Return what a pause is, by the name that a script gives it.

    >>> [pause_kind(one).value for one in ("evaluation", "Validate", "checkpoint", "coffee")]
    ['evaluation', 'evaluation', 'save', 'other']
    """
    folded = name.casefold()
    if folded.startswith(_EVALUATIONS):
        return PauseKind.EVALUATION
    return PauseKind.SAVE if folded.startswith(_SAVES) else PauseKind.OTHER


@dataclass(slots=True)
class RankPauses:
    """Pauses that one rank has declared since its newest step."""

    spent: Counter[PauseKind] = field(default_factory=Counter)
    # The one that goes on, and since when; None: it makes steps.
    open: PauseKind | None = None
    since_ns: int = 0

    def change(self, paused: Paused) -> None:
        """Begin another pause, or go on with steps where it has no name."""
        self._count(paused.at_boot_ns)
        self.open = pause_kind(paused.name) if paused.name else None

    def take(self, until_ns: int) -> Counter[PauseKind]:
        """Return the time of each kind up to the end of a step, once."""
        self._count(until_ns)
        spent, self.spent = self.spent, Counter()
        return +spent

    def _count(self, until_ns: int) -> None:
        if self.open is not None:
            self.spent[self.open] += max(0, until_ns - self.since_ns)
        self.since_ns = max(until_ns, self.since_ns)


@dataclass(slots=True)
class ProgressCombiner:
    """A step counts once every local rank reported it or a later one; the slowest sets its end."""

    ranks: int
    _last: dict[int, int] = field(default_factory=dict)
    _pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    _ready: dict[int, tuple[int, int]] = field(default_factory=dict)
    # By rank, and of each step that has some.
    _pauses: dict[int, RankPauses] = field(default_factory=dict)
    _paused: dict[int, Counter[PauseKind]] = field(default_factory=dict)

    def add_pause(self, rank: int, paused: Paused) -> None:
        """A rank begins what is no step, or ends it."""
        self._pauses.setdefault(rank, RankPauses()).change(paused)

    def end_pause(self, rank: int) -> None:
        """Nobody tells any more when a pause of this rank ends: what was not told is no pause."""
        self._pauses.pop(rank, None)

    def add(self, rank: int, progress: Progress) -> None:
        """Take one report. What a rank says twice, or of the past, changes nothing."""
        if progress.step <= self._last.get(rank, -1):
            return
        self._last[rank] = progress.step
        end, stall = self._pending.get(progress.step, (0, 0))
        self._pending[progress.step] = (
            max(end, progress.at_boot_ns),
            max(stall, progress.stall_ns),
        )
        if rank in self._pauses and (spent := self._pauses[rank].take(progress.at_boot_ns)):
            self._paused[progress.step] = self._paused.get(progress.step, Counter()) | spent
        if len(self._pending) > _PENDING_MAX:
            dropped = min(self._pending)
            del self._pending[dropped]
            self._paused.pop(dropped, None)
        self._advance()

    def last(self, rank: int) -> int | None:
        """Return the newest step that a rank said it completed."""
        return self._last.get(rank)

    def take_runs(self) -> list[StepRun]:
        """Return what is complete since the last time, oldest first."""
        ready, self._ready = self._ready, {}
        return [self._with_pauses(run) for run in _runs(ready)]

    @property
    def waiting(self) -> bool:
        """Return whether there is something to take."""
        return bool(self._ready)

    def _with_pauses(self, run: StepRun) -> StepRun:
        steps = range(run.first_step, run.first_step + len(run.end_boot_ns))
        if self._paused.keys().isdisjoint(steps):
            return run
        pauses = (
            StepPause(step, kind, lasted_ns)
            for step in steps
            for kind, lasted_ns in self._paused.pop(step, Counter()).items()
        )
        return replace(run, pauses=tuple(pauses))

    def _advance(self) -> None:
        if len(self._last) < self.ranks:
            return
        frontier = min(self._last.values())
        for step in sorted(step for step in self._pending if step <= frontier):
            self._ready[step] = self._pending.pop(step)


def _runs(steps: dict[int, tuple[int, int]]) -> Iterator[StepRun]:
    first = None
    ends: list[int] = []
    stalls: list[int] = []
    for step in sorted(steps):
        if first is not None and step != first + len(ends):
            yield StepRun(first, tuple(ends), tuple(stalls))
            first = None
        if first is None:
            first, ends, stalls = step, [], []
        ends.append(steps[step][0])
        stalls.append(steps[step][1])
    if first is not None:
        yield StepRun(first, tuple(ends), tuple(stalls))


@dataclass(slots=True)
class PhaseCount:
    """The phases of one generation on this node; each is reported once."""

    ranks: int
    told: set[Phase] = field(default_factory=set)
    _reached: dict[Phase, dict[int, int]] = field(default_factory=dict)

    def reach(self, phase: Phase, rank: int | None, at_boot_ns: int) -> int | None:
        """Note that a rank, or with None all of them, reached a phase.

        Returns when the last one did, the first time that all have.
        """
        if phase in self.told:
            return None
        ranks = self._reached.setdefault(phase, {})
        if rank is not None:
            ranks.setdefault(rank, at_boot_ns)
            if len(ranks) < self.ranks:
                return None
        self.told.add(phase)
        return max([at_boot_ns, *ranks.values()])


class Freshness:
    """The recoverable step of one job against its newest one; ``now_ns`` is any steady clock."""

    def __init__(self) -> None:
        self._recoverable = Recoverable()
        self._since_ns = 0
        self._newest = -1

    def record_recoverable(self, recoverable: Recoverable, now_ns: int) -> None:
        """The controller said what is recoverable."""
        before = self._recoverable
        if (recoverable.generation, recoverable.step) != (before.generation, before.step):
            self._recoverable, self._since_ns = recoverable, now_ns
        if recoverable.generation > before.generation:
            self._newest = -1

    def record_step(self, step: int) -> None:
        """A rank completed a step."""
        self._newest = max(self._newest, step)

    def age_s(self, now_ns: int) -> float:
        """Return for how long the step has been the newest that is recoverable; 0 without one."""
        if self._recoverable.step is None:
            return 0.0
        return max(0, now_ns - self._since_ns) / 1e9

    def steps_behind(self) -> int:
        """Return how many completed steps a restore would repeat; all while there is none."""
        step = self._recoverable.step
        return max(0, self._newest - (-1 if step is None else step))
