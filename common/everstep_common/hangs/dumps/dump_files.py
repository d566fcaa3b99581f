"""Dump files: of which rank each is by its name, and which are of one hang by their times. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from everstep_common.hangs.dumps.dump_entries import number_in
from everstep_common.hangs.reports.rank_report import RankHangReport

_ENDINGS = re.compile(r"(?:\.(?:json|pickle|pkl|bin|trace|dump))+$")
# 2026-11-28, 20261128, with a time of the day behind it or without, and seconds since 1970.
_CLOCK = r"\d{2}[-:.]?\d{2}(?:[-:.]?\d{2}(?:\.\d{1,9})?)?Z?"
_DAY = r"(?:19|20)\d{2}([-_.]?)(?:0[1-9]|1[0-2])\1[0-3]\d"
_DATE = re.compile(rf"(?<!\d)(?:{_DAY}(?:[T_. -]{_CLOCK})?|\d{{10,19}})(?!\d)")
_NAMED = re.compile(r"rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_LAST = re.compile(r"(.*?)(\d{1,6})")
# Ranks that hang together have enqueued their newest operations within a step of each other, and
# the clocks of nodes differ by less. A job that hangs again has waited for a timeout in between,
# which is 10 minutes with NCCL and 30 with gloo.
_APART_NS = 480 * 10**9
_MINUTE_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class DumpName:
    """A file's name as that of a dump: its rank, and what the names of its peers have as well."""

    rank: int
    stem: str


def dump_name(name: str) -> DumpName | None:
    """Return what a name says; None where it is not that of a dump.

    The rank is the number behind the word, or else the last of the name but for dates.
    """
    undated = _DATE.sub("", name)
    if (found := _NAMED.search(undated)) is not None:
        return DumpName(int(found[1]), undated[: found.start(1)])
    bare = _ENDINGS.sub("", undated).rstrip("-_.T ")
    if (last := _LAST.fullmatch(bare)) is not None:
        return DumpName(int(last[2]), last[1])
    return None


@dataclass(frozen=True, slots=True)
class ReadDump:
    """A file that was read: its rank's report, and when its newest operation was enqueued."""

    name: str
    report: RankHangReport
    # 0: it does not tell.
    newest_ns: int = 0


def newest_ns_of(values: Mapping[str, object]) -> int:
    """Return when the newest operation of a dump was enqueued, by its node's clock; 0: not told."""
    entries = values.get("entries")
    if not isinstance(entries, list):
        return 0
    times = (number_in(one.get("time_created_ns")) for one in entries if isinstance(one, dict))
    return max((time for time in times if time is not None), default=0)


def of_one_hang(dumps: Sequence[ReadDump]) -> tuple[list[ReadDump], list[ReadDump]]:
    """Return the dumps of one hang, and those of others: most are of the one, or the newer ones."""
    clusters: list[list[ReadDump]] = []
    for dump in sorted((one for one in dumps if one.newest_ns), key=lambda one: one.newest_ns):
        if clusters and dump.newest_ns - clusters[-1][-1].newest_ns <= _APART_NS:
            clusters[-1].append(dump)
        else:
            clusters.append([dump])
    if len(clusters) < 2:
        return list(dumps), []
    ours = max(clusters, key=_ranks_and_time)
    kept = {id(one) for one in ours}
    others = [one for one in dumps if one.newest_ns and id(one) not in kept]
    return [one for one in dumps if not one.newest_ns or id(one) in kept], others


def _ranks_and_time(dumps: Sequence[ReadDump]) -> tuple[int, int]:
    return len({one.report.rank for one in dumps}), dumps[0].newest_ns


def of_another_hang(other: ReadDump, ours: Iterable[ReadDump]) -> str:
    """Return why a dump says nothing of this hang."""
    newest_ns = max(one.newest_ns for one in ours)
    apart_ns = other.newest_ns - newest_ns
    when = "before" if apart_ns < 0 else "after"
    at = datetime.fromtimestamp(other.newest_ns // 10**9, UTC)
    return (
        f"{other.name}: its newest operation is of {at:%Y-%m-%d %H:%M:%S} UTC,"
        f" {abs(apart_ns) // _MINUTE_NS} minutes {when} those of most: it is of another hang"
    )
