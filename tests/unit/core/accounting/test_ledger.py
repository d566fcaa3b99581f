"""The ledger: categories sum to the wall clock, and late evidence goes where it belongs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.committed_steps import (
    CommittedStep,
    StepBlock,
    add_step,
    take_blocks_after,
)
from everstep_controller.core.accounting.ledger import Ledger

S = 1_000_000_000


def _running(at_s: int = 0) -> Ledger:
    ledger = Ledger(0)
    ledger.enter(0, Category.INIT_QUEUE)
    ledger.begin_steps(at_s * S, warmup=False)
    return ledger


def test_a_committed_step_is_productive_and_its_stall_is_not() -> None:
    ledger = _running(at_s=2)
    ledger.commit_step(0, 5 * S, stall_ns=S)
    assert ledger.totals(5 * S) == {
        Category.INIT_QUEUE: 2 * S,
        Category.PRODUCTIVE: 2 * S,
        Category.STALL: S,
    }


def test_time_above_the_reference_step_is_slow() -> None:
    ledger = _running()
    for step in range(6):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.commit_step(6, 10 * S, 0)
    assert ledger.totals(10 * S) == {Category.PRODUCTIVE: 7 * S, Category.SLOW: 3 * S}


def test_a_fault_is_charged_from_its_onset_not_from_its_report() -> None:
    ledger = _running()
    ledger.commit_step(0, 1 * S, 0)
    ledger.record_fault(onset_ns=3 * S, alarm_ns=5 * S, incident="j-1", cause="process")
    ledger.enter(5 * S, Category.DRAIN)
    assert ledger.totals(6 * S, "j-1") == {
        Category.LOST_IN_FLIGHT: 2 * S,
        Category.DETECT: 2 * S,
        Category.DRAIN: 1 * S,
    }


def test_a_step_that_is_reported_after_the_fault_still_counts() -> None:
    ledger = _running()
    ledger.commit_step(0, 1 * S, 0)
    ledger.record_fault(onset_ns=3 * S, alarm_ns=3 * S, incident="j-1", cause="process")
    ledger.enter(3 * S, Category.DRAIN)
    ledger.commit_step(1, 2 * S, 0)
    assert ledger.totals(4 * S) == {
        Category.PRODUCTIVE: 2 * S,
        Category.LOST_IN_FLIGHT: 1 * S,
        Category.DRAIN: 1 * S,
    }


def test_a_rollback_turns_steps_into_recompute() -> None:
    ledger = _running()
    for step in range(4):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(4 * S, 4 * S, "j-1", "process")
    assert ledger.roll_back(last_good=1) == 2
    assert ledger.totals(5 * S) == {
        Category.PRODUCTIVE: 2 * S,
        Category.LOST_RECOMPUTE: 2 * S,
        Category.DIAGNOSE: 1 * S,
    }


def test_steps_that_ranks_call_bad_are_a_loss_of_their_own() -> None:
    ledger = _running()
    for step in range(4):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(4 * S, 4 * S, "j-1", "rollback")
    assert ledger.roll_back(last_good=1) == 2
    totals = ledger.totals(5 * S)
    assert (totals[Category.LOST_CORRUPT], totals.get(Category.LOST_RECOMPUTE, 0)) == (2 * S, 0)


def test_a_rollback_reaches_what_was_folded_long_ago() -> None:
    ledger = _running()
    for step in range(400):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(400 * S, 400 * S, "j-1", "process")
    ledger.roll_back(last_good=9)
    totals = ledger.totals(400 * S)
    assert totals == {Category.PRODUCTIVE: 10 * S, Category.LOST_RECOMPUTE: 390 * S}


def test_the_excess_of_the_first_steps_after_a_restart_is_warm_up_of_the_incident() -> None:
    ledger = _running()
    for step in range(10):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(10 * S, 10 * S, "j-1", "process")
    ledger.begin_steps(12 * S, warmup=True)
    ledger.commit_step(10, 15 * S, 0)
    assert ledger.totals(15 * S, "j-1")[Category.WARMUP] == 2 * S


def test_the_excess_of_the_first_steps_after_planned_work_is_planned() -> None:
    ledger = _running()
    for step in range(10):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(10 * S, 10 * S, "j-1", "operator")
    ledger.begin_steps(12 * S, warmup=True)
    ledger.commit_step(10, 15 * S, 0)
    totals = ledger.totals(15 * S, "j-1")
    assert totals[Category.PLANNED] == 4 * S
    assert Category.WARMUP not in totals


def test_steps_of_a_new_generation_are_not_measured_by_those_of_the_one_before() -> None:
    ledger = _running()
    for step in range(10):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.begin_steps(12 * S, warmup=False)
    for step in range(10, 14):
        ledger.commit_step(step, 12 * S + (step - 9) * 3 * S, 0)
    totals = ledger.totals(24 * S)
    assert totals[Category.PRODUCTIVE] == 10 * S + 12 * S
    assert Category.SLOW not in totals


def test_a_run_of_steps_without_warm_up_takes_over_none_that_was_left() -> None:
    ledger = _running()
    for step in range(10):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.begin_steps(12 * S, warmup=True)
    ledger.begin_steps(12 * S, warmup=False)
    ledger.commit_step(10, 15 * S, 0)
    totals = ledger.totals(15 * S)
    assert totals[Category.PRODUCTIVE] == 10 * S + 3 * S
    assert Category.WARMUP not in totals


def test_so_many_first_steps_warm_up_and_no_more() -> None:
    ledger = _running()
    for step in range(10):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(10 * S, 10 * S, "j-1", "process")
    ledger.begin_steps(12 * S, warmup=True)
    for step in range(10, 14):
        ledger.commit_step(step, 12 * S + (step - 9) * 2 * S, 0)
    totals = ledger.totals(20 * S)
    assert totals[Category.WARMUP] == 3 * S
    assert totals[Category.PRODUCTIVE] == 10 * S + 3 * S + 2 * S


def test_what_was_in_flight_when_a_job_ends_is_a_gap() -> None:
    ledger = _running()
    ledger.commit_step(0, 1 * S, 0)
    ledger.close(2 * S)
    assert ledger.totals(99 * S) == {Category.PRODUCTIVE: S, Category.GAP: S}
    assert ledger.wall_ns(99 * S) == 2 * S


def test_what_happens_after_the_warm_up_is_not_charged_to_the_incident() -> None:
    ledger = _running()
    ledger.commit_step(0, 1 * S, 0)
    ledger.record_fault(1 * S, 1 * S, "j-1", "process")
    ledger.begin_steps(2 * S, warmup=True)
    for step in range(1, 5):
        ledger.commit_step(step, (step + 2) * S, 0)
    ledger.close(20 * S)
    assert ledger.totals(20 * S, "j-1") == {Category.DIAGNOSE: S}
    assert ledger.totals(20 * S)[Category.GAP] == 14 * S


_MOMENTS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "step", "slow", "fault", "rollback", "restart", "late"]),
        st.integers(0, 90_000_000_000),
    ),
    max_size=120,
)


@settings(max_examples=200, deadline=None)
@given(_MOMENTS)
def test_categories_sum_to_the_wall_clock_whatever_happens(moments: list[tuple[str, int]]) -> None:
    ledger, now_ns, step = _running(), 0, 0
    for what, length_ns in moments:
        before_ns = now_ns
        now_ns += length_ns
        if what == "enter":
            ledger.enter(now_ns - length_ns // 2, Category.ENV)
        elif what == "fault":
            ledger.record_fault(before_ns, now_ns, "j-1", "process")
        elif what == "rollback":
            ledger.roll_back(step - length_ns % 7)
        elif what == "restart":
            ledger.begin_steps(now_ns, warmup=True)
        else:
            step += 1
            end_ns = before_ns + 1 if what == "late" else now_ns
            ledger.commit_step(step, end_ns, length_ns // 3)
        totals = ledger.totals(now_ns)
        assert sum(totals.values()) == ledger.wall_ns(now_ns)
        assert min(totals.values(), default=1) > 0


def test_steps_that_are_made_again_are_lost_as_soon_as_the_first_of_them_is() -> None:
    ledger = _running()
    for step in range(115):
        ledger.commit_step(step, (step + 1) * S, 0)
    ledger.record_fault(116 * S, 116 * S, "j-1", "process")
    # Where the script goes on, nobody knows yet.
    assert Category.LOST_RECOMPUTE not in ledger.totals(120 * S)
    ledger.begin_steps(120 * S, warmup=True)
    ledger.commit_step(100, 121 * S, 0)
    assert ledger.totals(121 * S) == {
        Category.PRODUCTIVE: 101 * S,
        Category.LOST_RECOMPUTE: 15 * S,
        Category.LOST_IN_FLIGHT: 1 * S,
        Category.DIAGNOSE: 4 * S,
    }
    assert ledger.step_count == 101


def test_steps_that_were_not_seen_one_by_one_count_all_the_same() -> None:
    ledger = _running()
    for line in range(12):
        ledger.commit_step(10 * line + 9, (line + 1) * S, 0)
    assert ledger.step_count == 111  # of what was before the first line, nobody knows
    ledger.record_fault(13 * S, 13 * S, "j-1", "process")
    ledger.begin_steps(13 * S, warmup=True)
    ledger.commit_step(109, 14 * S, 0)
    assert ledger.step_count == 101


def test_steps_beyond_those_that_are_kept_one_by_one_are_taken_back_as_well() -> None:
    ledger = _running()
    ms = S // 1000
    for step in range(9000):
        ledger.commit_step(step, (step + 1) * 20 * ms, 0)
    ledger.record_fault(180 * S, 180 * S, "j-1", "process")
    assert ledger.roll_back(last_good=2999) == 6000
    assert ledger.totals(180 * S) == {
        Category.PRODUCTIVE: 60 * S,
        Category.LOST_RECOMPUTE: 120 * S,
    }
    assert ledger.roll_back(last_good=99) == 2900
    assert ledger.totals(180 * S)[Category.PRODUCTIVE] == 2 * S


def test_sums_of_many_steps_know_how_far_a_rollback_went() -> None:
    blocks: list[StepBlock] = []
    kept = 80_000
    for step in range(kept):
        add_step(blocks, CommittedStep(step, step, step + 1, 1, Category.SLOW, 0))
    for goal in (79_999, 79_998, 54_321, 100, 99, 0):
        taken = sum(block.count for block in take_blocks_after(blocks, goal))
        assert abs(taken - max(0, kept - goal - 1)) <= 1
        kept -= taken
        assert sum(block.spent.get(Category.PRODUCTIVE, 0) for block in blocks) == kept
    assert len(blocks) <= 256


def test_a_first_step_of_which_nobody_says_when_it_began_lasted_as_long_as_the_second() -> None:
    ledger = Ledger(0)
    ledger.enter(0, Category.INIT_PROC)
    ledger.begin_steps(0, warmup=True, guessed=True)
    ledger.commit_step(0, 10 * S, 0)
    # How long it took, nobody can tell yet.
    assert ledger.totals(10 * S) == {Category.PRODUCTIVE: 10 * S}
    for step in range(1, 4):
        ledger.commit_step(step, (10 + 2 * step) * S, 0)
    assert ledger.totals(16 * S) == {Category.INIT_PROC: 8 * S, Category.PRODUCTIVE: 8 * S}


def test_a_second_step_that_took_longer_than_all_before_it_dates_no_first_one() -> None:
    ledger = Ledger(0)
    ledger.enter(0, Category.INIT_PROC)
    ledger.begin_steps(0, warmup=True, guessed=True)
    ledger.commit_step(0, 10 * S, 0)
    ledger.commit_step(1, 30 * S, 0)
    ledger.commit_step(2, 40 * S, 0)
    assert Category.INIT_PROC not in ledger.totals(40 * S)


def test_a_first_step_is_dated_though_its_time_was_folded() -> None:
    ledger = Ledger(0)
    ledger.enter(0, Category.INIT_PROC)
    ledger.begin_steps(0, warmup=True, guessed=True)
    ledger.commit_step(0, 1000 * S, 0)
    ledger.commit_step(1, 1300 * S, 0)
    totals = ledger.totals(1300 * S)
    assert totals == {Category.INIT_PROC: 700 * S, Category.PRODUCTIVE: 600 * S}


def test_the_first_steps_of_a_generation_are_measured_by_its_reference_too() -> None:
    ledger = _running()
    ends = (1, 2, 6, 7, 8)  # the third saved its state
    for step, end_s in enumerate(ends):
        ledger.commit_step(step, end_s * S, 0)
    assert ledger.totals(8 * S) == {Category.PRODUCTIVE: 5 * S, Category.SLOW: 3 * S}
    assert [step.excess_ns for step in ledger.steps] == [0, 0, 3 * S, 0, 0]
