"""Rank reports that are kept: the newest of each kind from each rank of one generation."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, cast

from everstep_common.reports import RankReport

R = TypeVar("R", bound=RankReport)


class RankReports:
    """Newest reports of the ranks of one generation, of the kinds that a handler keeps.

    Nobody else has to know such a kind: the journal stores each under the name of its record.
    """

    __slots__ = ("_by_kind",)

    def __init__(self, reports: Iterable[RankReport] = ()) -> None:
        self._by_kind: dict[type[RankReport], dict[int, RankReport]] = {}
        for report in reports:
            self.keep(report)

    def keep(self, report: RankReport) -> None:
        """Keep a report in place of the one of its kind that its rank sent before."""
        self._by_kind.setdefault(type(report), {})[report.rank] = report

    def by_rank(self, kind: type[R]) -> Mapping[int, R]:
        """Return the newest report of a kind from each rank that has sent one."""
        return cast("Mapping[int, R]", self._by_kind.get(kind, {}))

    def __iter__(self) -> Iterator[RankReport]:
        return (report for reports in self._by_kind.values() for report in reports.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankReports) and self._by_kind == other._by_kind

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"RankReports({list(self)!r})"
