"""Two recorders: a torch built for NCCL has one for NCCL, and one for all other backends. Pure.

Each numbers groups and operations for itself, and a default group of both backends is in both.
Where both know of groups, those of the other backends get another description; that is so in all
ranks or in none, for a group is made by all of them together.
"""

from collections.abc import Mapping
from dataclasses import replace

from everstep_common.hangs.dumps.dump_values import read_dump
from everstep_common.hangs.dumps.flight_recorder import (
    NOTHING_NOTED,
    recent_of_dump,
    report_of_dump,
)
from everstep_common.hangs.dumps.noted_calls import NotedCalls
from everstep_common.hangs.reports.rank_report import GROUPS_MAX, GroupReport, RankHangReport

# In a dump of the other backends' recorder: what that of NCCL has recorded.
OF_NCCL = "everstep_nccl"
# After the description of a group of the other backends, where NCCL has groups as well.
ON_CPUS = " on CPUs"


def report_of_content(
    content: bytes, rank: int, *, world_size: int = 0, noted: NotedCalls = NOTHING_NOTED
) -> RankHangReport:
    """Return the report of a dump, which may be of both recorders. Raises DumpError."""
    return report_of_values(read_dump(content), rank, world_size=world_size, noted=noted)


def report_of_values(
    dump: Mapping[str, object],
    rank: int,
    *,
    world_size: int = 0,
    noted: NotedCalls = NOTHING_NOTED,
) -> RankHangReport:
    """Return the report of a dump's values. Raises DumpError."""
    nccl = dump.get(OF_NCCL)
    if not isinstance(nccl, dict):
        return report_of_dump(_whole(dump), rank, world_size=world_size, noted=noted)
    return report_of_both(dump, nccl, rank, world_size=world_size, noted=noted)


def report_of_both(
    others: Mapping[str, object],
    nccl: Mapping[str, object],
    rank: int,
    *,
    world_size: int = 0,
    noted: NotedCalls = NOTHING_NOTED,
) -> RankHangReport:
    """Return the report of one rank by what both of its recorders know. Raises DumpError.

    ``noted`` has what the rank has noted itself of other backends than NCCL.
    """
    of_others = report_of_dump(_whole(others), rank, world_size=world_size, noted=noted)
    of_nccl = report_of_dump(_whole(nccl), rank, world_size=world_size)
    return _of_both(others, of_others, nccl, of_nccl)


def recent_of_both(
    others: Mapping[str, object], nccl: Mapping[str, object], rank: int, *, world_size: int = 0
) -> RankHangReport:
    """Return when a rank enqueued its newest collectives, by both. Raises DumpError."""
    of_others = recent_of_dump(_whole(others), rank, world_size=world_size)
    of_nccl = recent_of_dump(_whole(nccl), rank, world_size=world_size)
    return _of_both(others, of_others, nccl, of_nccl)


def _of_both(
    others: Mapping[str, object],
    of_others: RankHangReport,
    nccl: Mapping[str, object],
    of_nccl: RankHangReport,
) -> RankHangReport:
    if not knows_groups(nccl):
        return of_others
    if not knows_groups(others):
        return replace(of_nccl, process=of_others.process)
    return _together(of_others, of_nccl)


def _whole(dump: Mapping[str, object]) -> Mapping[str, object]:
    """Return a dump with a list of operations: torch leaves out an empty one."""
    return dump if "entries" in dump else {**dump, "entries": []}


def knows_groups(dump: Mapping[str, object]) -> bool:
    """Return whether a recorder knows anything of a job: its backend has made a group."""
    return bool(dump.get("entries") or dump.get("pg_config") or dump.get("pg_status"))


def _together(others: RankHangReport, nccl: RankHangReport) -> RankHangReport:
    renamed = [replace(one, description=_on_cpus(one.description)) for one in others.groups]
    groups = sorted(
        (*nccl.groups, *renamed), key=lambda one: (not one.pending_count, not one.enqueued)
    )
    # What a rank waits in says by which backend it sends.
    waits = _waits(others.groups) and not _waits(nccl.groups)
    base, beside = (others, nccl) if waits or not nccl.backend else (nccl, others)
    timeouts = [one.timeout_ms for one in (others, nccl) if one.timeout_ms]
    return replace(
        base,
        world_size=max(others.world_size, nccl.world_size),
        libraries=nccl.libraries or others.libraries,
        groups=tuple(groups[:GROUPS_MAX]),
        groups_left_out=base.groups_left_out
        + beside.groups_left_out
        + max(0, len(groups) - GROUPS_MAX),
        timeout_ms=min(timeouts, default=0),
        process=others.process,
        # That one of two recorders has recorded nothing is nothing that is missing.
        blind=(*base.blind, *(beside.blind if beside.backend else ())),
    )


def _waits(groups: tuple[GroupReport, ...]) -> bool:
    return any(one.pending_count for one in groups)


def _on_cpus(description: str) -> str:
    return description[: 200 - len(ON_CPUS)] + ON_CPUS
