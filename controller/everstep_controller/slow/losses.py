"""Losses of a job to the slowest worker of each step: what if it were as fast as its peers."""

from dataclasses import dataclass, field

import numpy as np

from everstep_controller.slow.peers import Floats, Indices, Mask, Roster
from everstep_controller.slow.speeds import Speeds

# A step that takes all workers this much longer than usual is a pause of all.
COMMON_PAUSE = 1.5
# A worker that takes so much longer than its peers in one step pauses.
_PAUSE, _PAUSE_DEVIATIONS = 0.25, 8.0
# Seconds that differ by less are the same.
_EQUAL = 1e-3
_NEWEST, _FIRST_STEPS = 20, 10
_PAUSES_KEPT = 256
_LONGER_MAX = 200
# Ours: so many fast steps between slow ones, or slow ones before fast ones, are chance.
_FAST_MAX, _STALLS_MAX = 1, 2


@dataclass(frozen=True, slots=True)
class CommonPause:
    """Step that took all workers longer than usual, and how much longer."""

    step: int
    seconds: float
    # One of the first steps.
    early: bool
    # How many steps were seen before it: a table may have every tenth only.
    seen: int = 0


@dataclass(slots=True)
class Losses:
    """Sums over the steps of a job; as many numbers as workers and roles, and 256 pauses.

    A step takes as long as its slowest worker: ranks wait for each other once in it. In a pipeline
    that is the pace of its slowest stage.
    """

    roster: Roster
    steps: int = 0
    seconds: float = 0.0
    ideal_s: float = 0.0
    # Steps by how much longer than ideal they would be without those that are slow, in percent;
    # the last entry has all that are longer.
    longer: Indices = field(init=False)
    # How often each worker was the last one, of those that are not slow.
    last: Indices = field(init=False)
    role_s: Floats = field(init=False)
    pauses: Indices = field(init=False)
    paused_s: Floats = field(init=False)
    # Steps in which any worker paused.
    pause_steps: int = 0
    common: list[CommonPause] = field(default_factory=list)
    # Steps in which all told the same seconds: then these are not each worker's own.
    equal_steps: int = 0
    speeds: Speeds = field(init=False)
    _newest: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with no step."""
        self.last = np.zeros(self.roster.size, dtype=np.int64)
        self.speeds = Speeds(self.roster)
        self.longer = np.zeros(_LONGER_MAX + 1, dtype=np.int64)
        self.role_s = np.zeros(len(self.roster.role_names))
        self.pauses = np.zeros(self.roster.size, dtype=np.int64)
        self.paused_s = np.zeros(self.roster.size)

    def add(
        self, step: int, seconds: Floats, expected_s: Floats, noise: Floats, slow: Mask
    ) -> float:
        """Count a step; return what it lost to its slowest worker, in seconds."""
        roles = self.roster.by_role.medians(seconds).of_group
        self.speeds.add(seconds, roles)
        slowest, ideal = float(np.nanmax(seconds)), float(np.nanmax(roles))
        without = np.where(slow & ~np.isnan(expected_s), expected_s, seconds)
        paused = self._count_pauses(seconds, expected_s, noise, slow)
        # A pause is reported as such, and is no uneven work.
        without = np.where(paused, expected_s, without)
        self.last[np.nanargmax(np.where(slow, 0.0, without))] += 1
        self.steps += 1
        self.seconds += slowest
        self.ideal_s += ideal
        longer = float(np.nanmax(without)) / ideal - 1
        self.longer[min(int(100 * longer), _LONGER_MAX)] += 1
        self.role_s += np.nan_to_num(roles)
        self.equal_steps += bool(slowest - float(np.nanmin(seconds)) < _EQUAL * slowest)
        self._count_common(step, float(np.nanmedian(seconds)))
        return slowest - ideal

    @property
    def imbalance(self) -> float:
        """Return how much longer than ideal the median step is without those that are slow."""
        return float(np.searchsorted(np.cumsum(self.longer), (self.steps + 1) // 2)) / 100

    def forget_pauses(self, worker: int) -> None:
        """Take back the pauses of a worker that turned out to be slow."""
        self.pauses[worker], self.paused_s[worker] = 0, 0.0

    def _count_pauses(self, seconds: Floats, expected_s: Floats, noise: Floats, slow: Mask) -> Mask:
        """Count who pauses in a step; return them."""
        longer = np.log(seconds / expected_s)
        paused: Mask = (longer > np.fmax(_PAUSE, _PAUSE_DEVIATIONS * noise)) & ~slow
        self.pauses[paused] += 1
        self.paused_s[paused] += (seconds - expected_s)[paused]
        self.pause_steps += bool(paused.any())
        return paused

    def _count_common(self, step: int, middle: float) -> None:
        newest = self._newest
        if len(newest) < _FIRST_STEPS:
            newest.append((step, middle))
            if len(newest) == _FIRST_STEPS:
                usual = float(np.median([one for _, one in newest]))
                for early, value in newest:
                    self._pause(early, value, usual, early=True)
            return
        self._pause(step, middle, float(np.median([one for _, one in newest])))
        self._newest = [*newest[1 - _NEWEST :], (step, middle)]

    def _pause(self, step: int, middle: float, usual: float, *, early: bool = False) -> None:
        if middle > COMMON_PAUSE * usual and len(self.common) < _PAUSES_KEPT:
            self.common.append(CommonPause(step, middle - usual, early, self.steps))


def stalling(values: Floats, slow_from: Floats) -> Mask:
    """Return which columns are slow now and then: slow steps come before and between fast ones.

    A worker that becomes slow has fast steps only before that, but for one or two by chance.
    """
    slow, fast = values > slow_from, values <= slow_from
    between = np.count_nonzero(fast & np.logical_or.accumulate(slow), axis=0)
    before = np.count_nonzero(slow & np.logical_or.accumulate(fast[::-1])[::-1], axis=0)
    fast_max = _FAST_MAX if len(values) > _FIRST_STEPS else 0
    return np.asarray((between > fast_max) & (before > _STALLS_MAX))


def returning(values: Floats, fast_to: Floats, slow_from: Floats) -> Mask:
    """Return which columns are slow, then fast, and then slow again."""
    slow = values > slow_from
    before = np.cumsum(slow, axis=0)
    between = (before > _STALLS_MAX) & (before[-1] - before > _STALLS_MAX) & (values <= fast_to)
    return np.asarray(np.count_nonzero(between, axis=0) > _FAST_MAX)


def shares(seconds: Floats, expected_s: Floats, slow: Indices) -> Floats:
    """Return what one step loses to each slow worker, in seconds, if the others were not slow.

    So two that are equally slow are both told as what holds the job back.
    """
    without = seconds.copy()
    without[slow] = expected_s[slow]
    pace = float(np.nanmax(without))
    return np.asarray(np.fmax(np.nan_to_num(seconds[slow] - pace), 0.0))
