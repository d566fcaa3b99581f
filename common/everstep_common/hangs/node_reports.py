"""Node reports: what nodes report of a job's ranks, of each rank only its own node's word."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from everstep_common.codec import CodecError, from_json
from everstep_common.hangs.reports.rank_report import (
    ProcessEnding,
    ProcessState,
    RankHangReport,
)
from everstep_common.reports.nodes import RANK_REPORT_TEXT_MAX


@dataclass(frozen=True, slots=True)
class NodeTold:
    """Reports of one node, as JSON that nobody has read, and why there are not more."""

    node: str
    # Its ranks: so many from this one on.
    first_rank: int
    ranks: int
    reports: tuple[str, ...]
    missing: str = ""
    # How ranks ended of which that is known otherwise, by rank.
    endings: tuple[tuple[int, ProcessEnding], ...] = ()


@dataclass(slots=True)
class ToldByNodes:
    """What all nodes of a job told."""

    reports: list[RankHangReport] = field(default_factory=list)
    # Sentences for what is missing.
    missing: list[str] = field(default_factory=list)
    world_size: int = 0

    def take_node(self, told: NodeTold) -> None:
        """Take what one node tells."""
        self.world_size += told.ranks
        known: dict[int, RankHangReport] = {}
        for report in map(_read, told.reports):
            if report is None or not 0 <= report.rank - told.first_rank < told.ranks:
                self.missing.append(f"{told.node}: a report is left out, it is of no rank there")
            elif report.rank in known:
                self.missing.append(f"{told.node}: rank {report.rank} is reported twice")
            else:
                known[report.rank] = replace(report, node=told.node)
        for rank, ending in told.endings:
            if 0 <= rank - told.first_rank < told.ranks:
                known[rank] = _ended(known.get(rank), rank, ending, told.node)
        self.reports += known.values()
        if told.missing:
            self.missing.append(f"{told.node}: {told.missing}")


def read_all(told: Iterable[NodeTold]) -> ToldByNodes:
    """Return what all nodes of a job told."""
    found = ToldByNodes()
    for one in told:
        found.take_node(one)
    return found


def _ended(
    report: RankHangReport | None, rank: int, ending: ProcessEnding, node: str
) -> RankHangReport:
    """Return what is known of a rank with how it ended; what its node says of that counts more."""
    if report is None:
        report = RankHangReport(rank=rank, world_size=0, node=node)
    if report.process.ending is not None:
        return report
    process = replace(report.process, state=ProcessState.DEAD, ending=ending)
    return replace(report, process=process)


def _read(text: str) -> RankHangReport | None:
    if len(text) > RANK_REPORT_TEXT_MAX:
        return None
    try:
        return from_json(RankHangReport, json.loads(text))
    except (CodecError, ValueError, RecursionError):
        return None
