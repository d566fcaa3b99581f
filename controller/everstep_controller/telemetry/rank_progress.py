"""Rank progress: how far each rank of a job is, as the nodes told last, in memory only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everstep_common.reports import RankColumns
from everstep_common.reports.rank_columns import RankRow, unpack_ranks


@dataclass(frozen=True, slots=True)
class ToldProgress:
    """What one node told of the ranks of one job."""

    node: str
    generation: int
    # When it came, on the controller's timeline.
    told_ns: int
    columns: RankColumns

    def rows(self) -> Iterator[RankRow]:
        """Yield the ranks; they are unpacked for who asks, not as they come."""
        return unpack_ranks(self.columns)


class RankProgressTable:
    """The newest word of each node, which replaces the one before: bounded by the fleet."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, tuple[RankColumns, ...]]] = {}

    def replace(self, node: str, columns: tuple[RankColumns, ...], now_ns: int) -> None:
        """A node told how far its ranks are."""
        if columns:
            self._told[node] = (now_ns, columns)
        else:
            self._told.pop(node, None)

    def of_job(self, job: str, nodes: Iterable[str]) -> list[ToldProgress]:
        """Return what these nodes told of a job."""
        found = []
        for node in nodes:
            told_ns, columns = self._told.get(node, (0, ()))
            for one in columns:
                if one.job == job:
                    found.append(ToldProgress(node, one.generation, told_ns, one))
        return found
