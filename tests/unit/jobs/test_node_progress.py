"""Steps of several ranks become steps of the node."""

from hypothesis import example, given
from hypothesis import strategies as st

from everstep_agent.jobs.job.progress import PhaseCount, ProgressCombiner, StepRun
from everstep_common.rank_messages import Paused, Progress
from everstep_common.reports import PauseKind, Phase, StepPause


def test_a_step_counts_when_the_slowest_rank_completed_it() -> None:
    combiner = ProgressCombiner(2)
    combiner.add(0, Progress(5, 100, 1))
    assert not combiner.waiting
    combiner.add(1, Progress(5, 130, 3))
    assert combiner.take_runs() == [StepRun(5, (130,), (3,))]
    assert combiner.take_runs() == []


def test_consecutive_steps_come_in_one_run_and_a_gap_begins_another() -> None:
    combiner = ProgressCombiner(1)
    for step in (1, 2, 4):
        combiner.add(0, Progress(step, step * 10, 0))
    assert combiner.take_runs() == [StepRun(1, (10, 20), (0, 0)), StepRun(4, (40,), (0,))]


def test_a_report_that_got_lost_does_not_hold_up_the_later_ones() -> None:
    combiner = ProgressCombiner(2)
    combiner.add(0, Progress(1, 10, 0))
    combiner.add(1, Progress(2, 21, 0))
    combiner.add(0, Progress(2, 20, 0))
    assert combiner.take_runs() == [StepRun(1, (10, 21), (0, 0))]


def test_pauses_are_of_the_step_that_they_are_in_and_the_longest_of_all_ranks_counts() -> None:
    combiner = ProgressCombiner(2)
    for rank, lasted in ((0, 30), (1, 50)):
        combiner.add_pause(rank, Paused("evaluation", 100))
        combiner.add_pause(rank, Paused("checkpoint", 100 + lasted))
        combiner.add_pause(rank, Paused("", 160))
    for rank in (0, 1):
        combiner.add(rank, Progress(7, 200, 0))
        combiner.add(rank, Progress(8, 300, 0))
    (run,) = combiner.take_runs()
    assert run.pauses == (
        StepPause(7, PauseKind.EVALUATION, 50),
        StepPause(7, PauseKind.SAVE, 30),
    )


def test_a_pause_that_goes_on_is_of_both_steps() -> None:
    combiner = ProgressCombiner(1)
    combiner.add_pause(0, Paused("coffee", 100))
    combiner.add(0, Progress(1, 120, 0))
    combiner.add_pause(0, Paused("", 150))
    combiner.add(0, Progress(2, 200, 0))
    (run,) = combiner.take_runs()
    assert run.pauses == (StepPause(1, PauseKind.OTHER, 20), StepPause(2, PauseKind.OTHER, 30))


def test_a_pause_of_which_nobody_told_the_end_is_none() -> None:
    combiner = ProgressCombiner(1)
    combiner.add_pause(0, Paused("evaluation", 100))
    combiner.end_pause(0)
    combiner.add(0, Progress(1, 1000, 0))
    assert combiner.take_runs() == [StepRun(1, (1000,), (0,))]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=120))
@example([(rank, 0) for rank in (0, 1, 2, 0, 1, 2)])
def test_no_step_is_told_twice_and_none_before_all_ranks_passed_it(
    reports: list[tuple[int, int]],
) -> None:
    combiner = ProgressCombiner(3)
    last = dict.fromkeys(range(3), -1)
    told: list[int] = []
    for rank, step in reports:
        combiner.add(rank, Progress(step, step, 0))
        last[rank] = max(last[rank], step)
        for run in combiner.take_runs():
            told += range(run.first_step, run.first_step + len(run.end_boot_ns))
            assert told[-1] <= min(last.values())
    assert told == sorted(set(told))


def test_a_phase_is_told_once_when_the_last_rank_reaches_it() -> None:
    count = PhaseCount(2)
    assert count.reach(Phase.ATTACHED, 0, 50) is None
    assert count.reach(Phase.ATTACHED, 0, 60) is None
    assert count.reach(Phase.ATTACHED, 1, 40) == 50
    assert count.reach(Phase.ATTACHED, 1, 70) is None


def test_a_phase_that_was_told_before_a_restart_is_not_told_again() -> None:
    assert PhaseCount(1, {Phase.ATTACHED}).reach(Phase.ATTACHED, 0, 1) is None
