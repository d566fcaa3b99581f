"""Reports of ranks: what a training process says to the controller, through its agent as it is."""

import typing
from dataclasses import dataclass

from everstep_common import quantities as q


@dataclass(frozen=True, slots=True, order=True)
class DataRange:
    """Batches of the job's data, by their numbers; both ends belong to it."""

    first: q.Batch
    last: q.Batch

    def problems(self) -> list[str]:
        """Say what is wrong with it."""
        if self.first <= self.last:
            return []
        return [f"data {self.first} to {self.last} is no range: name its first batch first"]

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.first < self.last else f"{self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """Report of a training process itself: its agent passes it on, and sees to these fields."""

    generation: q.Generation = 0
    rank: q.Rank = 0
    at_boot_ns: q.BootNs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsked(RankReport):
    """A rank says that the state after a step is bad: the job shall go on from an older one."""

    step: q.ToldStep
    reason: q.Line
    # Data that is left out from then on.
    skip: DataRange | None = None


# All of them, each in the list of what is reported of a job; typing knows no union of one.
SentByRank = RollbackAsked
RANK_REPORTS: tuple[type[RankReport], ...] = typing.get_args(SentByRank) or (SentByRank,)
