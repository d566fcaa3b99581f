"""What a rank tells falsely, or cannot know, names nobody else."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict
from hung_jobs.faulty import faulty_job

_RANKS = 4


def _group(
    enqueued: int | None, completed: int | None, name: str = "all_reduce", **changed: object
) -> GroupReport:
    waits = enqueued is not None and completed is not None and enqueued > completed
    first = Operation((completed or 0) + 1, name, "4 Float", OperationState.SCHEDULED)
    whole = GroupReport(
        description="default_pg",
        members=f"0-{_RANKS - 1}",
        size=_RANKS,
        enqueued=enqueued,
        completed=completed,
        pending_count=int(waits),
        pending=(first,) if waits else (),
        done=f"{name} 4 Float" if completed else "",
    )
    return replace(whole, **changed)  # type: ignore[arg-type]


def _report(rank: int, *groups: GroupReport) -> RankHangReport:
    return RankHangReport(rank=rank, world_size=_RANKS, groups=groups)


def _named(verdict: HangVerdict) -> dict[int, HangClass]:
    return {one.rank: one.kind for one in verdict.culprits}


def _judged(reports: Iterable[RankHangReport]) -> HangVerdict:
    return judge(reports, _RANKS)


def test_who_completed_what_nobody_else_has_come_to_is_not_believed() -> None:
    honest = [_report(rank, _group(7, 6)) for rank in (0, 1)]
    late, liar = _report(2, _group(6, 6)), _report(3, _group(50, 50))
    verdict = _judged([*honest, late, liar])
    assert _named(verdict) == {2: HangClass.CPU_SIDE}
    assert any("rank 3: invalid" in line for line in verdict.blind)


def test_who_has_not_come_to_what_most_have_completed_is_not_believed() -> None:
    honest = [_report(rank, _group(8, 7)) for rank in (0, 1)]
    verdict = _judged([*honest, _report(2, _group(7, 7)), _report(3, _group(2, 2))])
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_who_gives_may_be_ahead_of_who_takes() -> None:
    ahead = _report(0, _group(9, 8, "broadcast"))
    verdict = _judged([ahead, *(_report(rank, _group(6, 6, "broadcast")) for rank in (1, 2, 3))])
    assert not any("invalid" in line for line in verdict.blind)


@pytest.mark.parametrize("seed", range(6))
def test_a_lie_about_all_its_groups_makes_no_other_rank_look_late(seed: int) -> None:
    job = faulty_job(seed, "cpu", layout="fsdp")
    liar = next(one for one in job.reports if one.rank not in job.culprits)
    groups = tuple(
        replace(one, enqueued=900, completed=900, pending=(), pending_count=0, done="all_reduce")
        for one in liar.groups
    )
    lied = [replace(one, groups=groups) if one is liar else one for one in job.reports]
    named = {one.rank for one in judge(lied, job.world_size).culprits}
    assert named <= job.culprits


def test_a_recorder_that_kept_nothing_of_a_group_has_not_come_to_what_its_peers_wait_in() -> None:
    waiting = [_report(rank, _group(7, 6)) for rank in (0, 1, 3)]
    verdict = _judged([*waiting, _report(2, _group(None, None))])
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_an_operation_in_which_all_stand_names_nobody() -> None:
    verdict = _judged(_report(rank, _group(7, 6)) for rank in range(_RANKS))
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.FABRIC, {}, "0-3")


def test_who_stands_alone_in_what_all_others_have_completed_is_on_its_gpu_side() -> None:
    done = [_report(rank, _group(7, 7, "broadcast")) for rank in (0, 1, 3)]
    verdict = _judged([*done, _report(2, _group(7, 6, "broadcast"))])
    assert _named(verdict) == {2: HangClass.GPU_SIDE}


def test_a_missing_dump_names_a_rank_only_where_no_others_are_missing() -> None:
    """Of eight ranks one may have lost its dump, as those that nobody waits for have."""
    waits = replace(_report(0, _group(7, 6, members="0-1", size=2)), world_size=8)
    only = replace(waits, world_size=2)
    assert _named(judge([only], 2)) == {1: HangClass.SILENT}
    well = [
        RankHangReport(rank=rank, world_size=8, groups=(_group(6, 6, members="4-7"),))
        for rank in (4, 5, 6, 7)
    ]
    verdict = judge([waits, *well], 8)
    assert (verdict.kind, _named(verdict)) == (HangClass.SILENT, {})
    assert verdict.confidence is Confidence.UNSURE
    assert "1" in verdict.suspects


# --- orders --------------------------------------------------------------------------------------


def _two(rank: int, first: tuple[int, int], second: tuple[int, int], order: int) -> RankHangReport:
    """Return a rank in two groups; ``order`` 1: it called the pending one of the second before."""
    groups = []
    for place, (enqueued, completed) in enumerate((first, second)):
        group = _group(enqueued, completed, description=f"group {place}")
        if group.pending:
            created = 100 + (place if order == 0 else -place)
            group = replace(group, pending=(replace(group.pending[0], created_ns=created),))
        groups.append(group)
    return _report(rank, *groups)


def test_who_left_an_operation_out_and_went_on_is_named_as_the_program() -> None:
    """Three wait in #7 of the first group; the fourth did not call it, and calls the second's."""
    waiting = [_two(rank, (7, 6), (4, 4), 0) for rank in (0, 1, 3)]
    verdict = _judged([*waiting, _two(2, (6, 6), (5, 4), 0)])
    assert _named(verdict) == {2: HangClass.DESYNC}
    assert "has not called that one" in verdict.culprits[0].reason


def test_who_changed_two_operations_is_named_where_all_have_called_both() -> None:
    waiting = [_two(rank, (7, 6), (5, 4), 0) for rank in (0, 1, 3)]
    verdict = _judged([*waiting, _two(2, (7, 6), (5, 4), 1)])
    assert _named(verdict) == {2: HangClass.DESYNC}


def test_of_two_ranks_with_different_orders_neither_is_named() -> None:
    verdict = _judged([_two(0, (7, 6), (4, 4), 0), _two(2, (6, 6), (5, 4), 0)])
    assert (verdict.kind, _named(verdict)) == (HangClass.DESYNC, {})


def test_who_is_late_in_two_groups_is_late_and_no_fault_of_the_program() -> None:
    waiting = [_two(rank, (7, 6), (5, 4), 0) for rank in (0, 1, 3)]
    verdict = _judged([*waiting, _two(2, (6, 6), (4, 4), 0)])
    assert _named(verdict) == {2: HangClass.CPU_SIDE}
