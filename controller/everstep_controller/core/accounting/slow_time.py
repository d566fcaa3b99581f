"""Slow time: what steps that take too long are put down to, by what judges have found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from everstep_controller.core.accounting.categories import Category

# A step that takes so much longer than the others is a pause, where judges have seen pauses.
PAUSE = 1.5


class SlowCause(StrEnum):
    """What makes steps long besides ranks and places that are slow."""

    # Each step is of other work: sequences of different lengths, experts that are asked for more.
    DATA = "data"
    # One role has more to compute than the others.
    STAGE = "stage"
    # Single steps are long: storage, loaders, garbage collection.
    PAUSES = "pauses"


# A slow node goes before uneven work: that was there before.
_CATEGORIES: Mapping[SlowCause, Category] = MappingProxyType(
    {SlowCause.DATA: Category.SLOW_DATA, SlowCause.STAGE: Category.SLOW_STAGE}
)


@dataclass(frozen=True, slots=True)
class SlowTime:
    """What excess is put down to until judges find otherwise."""

    category: Category = Category.SLOW
    # How many times as long as the reference its steps take by that.
    factor: float = 1.0
    # Whether longer ones are pauses.
    pauses: bool = False
    # The reference of before a node was slow, which does not follow it; 0: the newest steps'.
    reference_ns: int = 0

    def category_of(self, work_ns: int, reference_ns: int) -> Category:
        """Return where the excess of a step goes."""
        if self.pauses and work_ns > PAUSE * self.factor * reference_ns:
            return Category.SLOW_PAUSES
        return self.category


def slow_time(factors: Iterable[float], causes: Iterable[str]) -> SlowTime:
    """Return what excess is put down to: ranks or places that are slow by factors, or causes."""
    known = {SlowCause(cause) for cause in causes if cause in {*SlowCause}}
    pauses, slowest = SlowCause.PAUSES in known, max(factors, default=0.0)
    if slowest:
        return SlowTime(Category.SLOW_NODE, max(slowest, 1.0), pauses)
    found = (category for cause, category in _CATEGORIES.items() if cause in known)
    return SlowTime(next(found, Category.SLOW), pauses=pauses)
