"""Who comes last to collectives, by one look at made jobs; and what is no slowness of a rank."""

from dataclasses import replace

import numpy as np
import pytest
from slow.collective_series import MadeJob, noise

from everstep_controller.slow.collective_arrival.collective_finding import CollectiveFinding
from everstep_controller.slow.collective_arrival.late_ranks import find_late

_STEPS = 60


def _found(job: MadeJob, leave_out: tuple[int, ...] = ()) -> CollectiveFinding:
    reports = [one for one in job.reports() if one.rank not in leave_out]
    return find_late(reports, job.places, job.clocks)


def _job(seed: int, ranks: int = 8, *, scale: float = 0.01) -> MadeJob:
    return MadeJob(0.2 * noise(seed, _STEPS, ranks, scale), [range(ranks)])


def _slowed(job: MadeJob, factors: dict[int, float]) -> MadeJob:
    own = job.own_s.copy()
    for rank, factor in factors.items():
        own[:, rank] *= factor
    return replace(job, own_s=own)


def _nominated(found: CollectiveFinding) -> list[int]:
    return sorted(one.rank for one in found.late if one.nominated)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("timed", [False, True])
def test_exactly_the_rank_that_works_longer_is_nominated(seed: int, timed: bool) -> None:
    job = replace(_slowed(_job(seed), {5: 1.2}), timed=timed, backend="nccl" if timed else "gloo")
    found = _found(job)
    assert _nominated(found) == [5]
    (late,) = found.late
    assert late.node == "n5"
    assert late.times > 0.8 * late.of
    assert late.wait_ms == pytest.approx(40, rel=0.3)
    assert late.every_ms == pytest.approx(242, rel=0.1)
    assert late.factor == pytest.approx(1.2, rel=0.05)
    assert found.sentence.startswith("Rank 5 (n5) comes last to ")
    assert not found.blind


@pytest.mark.parametrize("seed", range(10))
def test_of_ranks_that_work_equally_long_nobody_is_nominated(seed: int) -> None:
    found = _found(_job(seed))
    assert not found.late
    assert found.sentence == "Nobody comes last to collectives again and again"
    assert (found.collectives, found.ranks) == (_STEPS - 1, 8)


@pytest.mark.parametrize("seed", range(5))
def test_uneven_data_is_nobody_and_is_told(seed: int) -> None:
    job = _job(seed)
    uneven = np.random.default_rng(seed).uniform(0.6, 1.4, job.own_s.shape)
    found = _found(replace(job, own_s=job.own_s * uneven))
    assert not _nominated(found)
    assert "the work is uneven" in found.sentence


def test_two_that_come_late_together_are_both_nominated() -> None:
    assert _nominated(_found(_slowed(_job(1, ranks=16), {3: 1.3, 9: 1.28}))) == [3, 9]


def test_a_rank_that_saves_now_and_then_is_not_nominated() -> None:
    job = _job(2)
    job.own_s[::10, 0] += 1.0
    assert not _nominated(_found(job))


def test_steps_that_are_long_for_all_are_nobodys() -> None:
    job = _job(3)
    job.own_s[:5] *= 20
    job.own_s[30] *= 10
    assert not _found(job).late


def test_a_leaf_that_is_late_as_a_whole_is_told_as_one() -> None:
    job = _slowed(_job(4, ranks=32), dict.fromkeys(range(8, 16), 1.2))
    domains = tuple(f"leaf{rank // 8}" for rank in range(32))
    found = _found(replace(job, domains=domains))
    assert not _nominated(found)
    assert "domain leaf1" in found.sentence


@pytest.mark.parametrize("timed", [False, True])
def test_who_waits_for_the_late_one_in_another_group_is_not_nominated(timed: bool) -> None:
    tensor = [range(first, first + 4) for first in range(0, 32, 4)]
    data = [range(first, 32, 4) for first in range(4)]
    job = MadeJob(
        0.2 * noise(5, _STEPS, 32),
        data,
        outer_name="mesh_dp",
        inner=tensor,
        timed=timed,
    )
    found = _found(_slowed(job, {9: 1.4}))
    assert _nominated(found) == [9]
    assert len(set(found.roles)) == 1 or "tp" in found.roles_sentence


def test_of_a_pipeline_that_is_late_as_a_whole_one_may_hold_the_others_up() -> None:
    data = [range(first, first + 8) for first in range(0, 32, 8)]
    pipes = [range(first, 32, 8) for first in range(8)]
    job = _slowed(_job(6, ranks=32), dict.fromkeys(pipes[2], 1.3))
    found = _found(replace(job, outer=data, outer_name="mesh_dp", silent=pipes))
    assert not _nominated(found)
    assert {one.rank for one in found.late} == set(pipes[2])
    assert "one of them may hold the others up" in found.late[0].why_not
    assert found.roles_sentence == "roles by pp, as the process groups show"


def test_a_clock_that_is_off_by_more_than_the_lateness_nominates_nobody() -> None:
    off = _found(replace(_job(7), clock_s={4: 0.03}, uncertainty_s=0.02))
    assert not _nominated(off)
    assert "the clocks of the nodes agree to 40 ms only" in off.late[0].why_not
    # Durations need no clocks.
    timed = replace(_slowed(_job(7), {2: 1.2}), clock_s={4: 0.03}, uncertainty_s=0.02, timed=True)
    assert _nominated(_found(timed)) == [2]


def test_of_two_ranks_nobody_is_nominated_and_why_is_told() -> None:
    found = _found(_slowed(_job(8, ranks=2), {1: 1.5}))
    (late,) = found.late
    assert (late.rank, late.nominated) == (1, False)
    assert "fewer than three peers" in late.why_not
    assert found.sentence.startswith("Rank ")
    assert found.sentence.endswith("; so nobody is named")


def test_launches_on_a_gpu_without_timing_say_what_they_do_not_show() -> None:
    found = _found(replace(_job(9), backend="nccl"))
    assert any("TORCH_NCCL_ENABLE_TIMING=1" in one for one in found.blind)


def test_ranks_that_told_nothing_are_counted_and_a_group_without_many_is_not_judged() -> None:
    job = _slowed(_job(10, ranks=16), {3: 1.3})
    assert _nominated(_found(job, leave_out=(7,))) == [3]
    found = _found(job, leave_out=(7, 8, 9))
    assert found.collectives == 0
    assert any("only 13 of its 16 ranks" in one for one in found.blind)


def test_what_a_hostile_rank_packs_is_left_out() -> None:
    job = _job(11, ranks=16)
    reports = job.reports()
    (group,) = reports[5].groups
    assert group.recent is not None
    for bad in ({"times_us": "AAAA"}, {"sequences": "?"}, {"first_sequence": 2**63 - 1}):
        broken = replace(group, recent=replace(group.recent, **bad))
        reports[5] = replace(reports[5], groups=(broken,))
        found = find_late(reports, job.places, job.clocks)
        assert (found.ranks, _nominated(found)) == (15, [])


def test_ranks_that_are_not_in_step_are_not_judged() -> None:
    job = _job(12)
    apart = replace(job, clock_s={1: 3.0})
    found = _found(apart)
    assert found.collectives == 0
    assert any("without waiting for those before" in one for one in found.blind)
