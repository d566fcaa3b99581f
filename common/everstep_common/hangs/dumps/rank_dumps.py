"""Rank dumps: one report for each rank, of dumps that may be several or of no use. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from everstep_common.hangs.reports.rank_report import (
    BLIND_MAX,
    Blind,
    EvidenceSource,
    RankHangReport,
)


def blind_report(
    rank: int, reason: str, source: EvidenceSource = EvidenceSource.FLIGHT_RECORDER
) -> RankHangReport:
    """Return the report of a rank of which nothing usable was read."""
    return RankHangReport(rank=rank, blind=(Blind(source, reason[:500]),))


def merged(reports: Iterable[RankHangReport]) -> dict[int, RankHangReport]:
    """Return one report for each rank; of two that contradict each other, neither is used.

    A file of which nothing can be used contradicts nobody.
    """
    found: dict[int, RankHangReport] = {}
    for report in reports:
        known = found.setdefault(report.rank, report)
        if known is report:
            continue
        unusable = [one for one in (known, report) if is_unusable(one)]
        if len(unusable) == 1:
            found[report.rank] = _beside(known if unusable[0] is report else report, unusable[0])
        elif _frontiers(known) == _frontiers(report):
            found[report.rank] = max(known, report, key=_frames_told)
        else:
            told = (
                f"there are two dumps of rank {report.rank}, and they contradict each other; where"
                " two jobs have left theirs here, --prefix chooses one"
            )
            found[report.rank] = blind_report(report.rank, told, EvidenceSource.IDENTITY)
    return found


def is_unusable(report: RankHangReport) -> bool:
    """Return whether nothing could be used of a dump."""
    return bool(report.blind) and not report.groups


def _beside(report: RankHangReport, other: RankHangReport) -> RankHangReport:
    """Return a report that also says why another dump of its rank could not be used."""
    reasons = [replace(one, source=EvidenceSource.FLIGHT_RECORDER) for one in other.blind]
    return replace(report, blind=(*report.blind, *reasons)[:BLIND_MAX])


def _frontiers(report: RankHangReport) -> object:
    groups = ((one.description, one.members, one.ordinal, one.enqueued) for one in report.groups)
    return sorted(groups, key=str), bool(report.blind)


def _frames_told(report: RankHangReport) -> int:
    return sum(len(one.frames) for group in report.groups for one in group.pending)
