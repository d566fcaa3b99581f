"""Published rules on the same series, beside Everstep's: who is slow after each step.

Each is that system's formula on seconds by worker and step, not the whole system, which measures
other things as well.
"""

from collections.abc import Iterator

import numpy as np
from slow.series import Series

from everstep_controller.slow.peers import Floats, Mask
from everstep_controller.slow.watch import SlowWatch

# Steps that a rule without a window of its own is given, as the median of them.
_WINDOW = 10


def everstep(series: Series) -> Iterator[Mask]:
    """Yield who is slow by SlowWatch."""
    watch = SlowWatch(series.roster)
    for step, seconds in zip(series.steps, series.seconds, strict=True):
        yield watch.observe(step, seconds).slow


def greyhound(series: Series) -> Iterator[Mask]:
    """Yield who takes 1.2 times the median of its position or more (ATC 2025, profile phase)."""
    for seconds in _medians(series.seconds):
        medians = series.roster.by_role.medians(seconds).of_group
        yield seconds >= 1.2 * medians[series.roster.roles]


def nvrx(series: Series) -> Iterator[Mask]:
    """Yield whose score, the fastest worker's median by its own, is below 0.75."""
    for seconds in _medians(series.seconds):
        yield seconds.min() / seconds < 0.75


def dlrover(series: Series) -> Iterator[Mask]:
    """Yield who takes more than twice the median of all (its node check)."""
    for seconds in _medians(series.seconds):
        yield seconds > 2 * np.median(seconds)


def _medians(seconds: Floats) -> Iterator[Floats]:
    for step in range(len(seconds)):
        if step + 1 < _WINDOW:
            yield np.ones(seconds.shape[1])
        else:
            yield np.median(seconds[step + 1 - _WINDOW : step + 1], axis=0)


RULES = {
    "everstep slow": everstep,
    "Greyhound 1.2 x median of position": greyhound,
    "NVRx score < 0.75": nvrx,
    "DLRover > 2 x median": dlrover,
}
