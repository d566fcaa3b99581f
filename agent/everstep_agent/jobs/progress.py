"""Combines what the local ranks say of their steps into what the node says. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from everstep_common.trainer_messages import Progress

# A rank that hangs while others go on must not make the agent grow.
_PENDING_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StepRun:
    """Consecutive steps that every local rank completed (boot clock and durations in ns)."""

    first_step: int
    end_boot_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]


@dataclass(slots=True)
class ProgressCombiner:
    """A step counts once every local rank reported it or a later one; the slowest sets its end."""

    ranks: int
    _last: dict[int, int] = field(default_factory=dict)
    _pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    _ready: dict[int, tuple[int, int]] = field(default_factory=dict)

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
        if len(self._pending) > _PENDING_MAX:
            del self._pending[min(self._pending)]
        self._advance()

    def last(self, rank: int) -> int | None:
        """Return the newest step that a rank said it completed."""
        return self._last.get(rank)

    def take(self) -> list[StepRun]:
        """Return what is complete since the last time, oldest first."""
        ready, self._ready = self._ready, {}
        return list(_runs(ready))

    @property
    def waiting(self) -> bool:
        """Return whether there is something to take."""
        return bool(self._ready)

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
