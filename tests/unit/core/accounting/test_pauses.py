"""Pauses that scripts declare: an evaluation is no slow step, and sums stay exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.reports import PauseKind, StepPause
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.committed_steps import STEPS_KEPT, CommittedSteps
from everstep_controller.core.accounting.ledger import Ledger, device_totals, ettr_devices
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_incident_retention import Months
from unit.core.test_decisions import S


def _running() -> Ledger:
    ledger = Ledger(0, nodes=3)
    ledger.enter(0, Category.INIT_QUEUE)
    ledger.begin_steps(0, warmup=False)
    return ledger


def _steps(ledger: Ledger, first: int, count: int, at_ns: int) -> int:
    for number in range(first, first + count):
        at_ns += S
        ledger.commit_step(number, at_ns, 0)
    return at_ns


def test_an_evaluation_is_no_slow_step() -> None:
    ledger = _running()
    at_ns = _steps(ledger, 0, 10, 0) + 31 * S
    ledger.commit_step(10, at_ns, 0, {Category.EVAL: 30 * S})
    assert ledger.totals(at_ns) == {Category.PRODUCTIVE: 11 * S, Category.EVAL: 30 * S}
    assert ledger.steps[-1].work_ns == S


def test_what_is_told_of_pauses_is_never_more_than_the_step_has() -> None:
    ledger = _running()
    told = {Category.EVAL: 7 * S, Category.USER_PAUSE: 9 * S}
    ledger.commit_step(0, 10 * S, 4 * S, told)
    assert ledger.totals(10 * S) == {Category.STALL: 4 * S, Category.EVAL: 6 * S}


def test_steps_with_a_pause_that_are_taken_back_are_lost_as_a_whole() -> None:
    ledger = _running()
    ledger.commit_step(0, S, 0)
    ledger.commit_step(1, 5 * S, 0, {Category.PERSIST: 3 * S})
    ledger.roll_back(0)
    assert ledger.totals(5 * S) == {Category.PRODUCTIVE: S, Category.LOST_RECOMPUTE: 4 * S}
    assert not ledger.steps[-1].pauses


def test_pauses_that_are_folded_are_lost_with_their_steps_too() -> None:
    ledger = _running()
    at_ns = 0
    for number in range(300):
        at_ns += 2 * S
        ledger.commit_step(number, at_ns, 0, {Category.EVAL: S} if number % 3 == 0 else {})
    ledger.roll_back(99)
    told = ledger.totals(at_ns)
    assert told[Category.LOST_RECOMPUTE] == 400 * S
    assert sum(told.values()) == at_ns


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_sums_are_exact_and_steps_read_the_same_from_their_columns(
    told: list[tuple[int, int, int]],
) -> None:
    ledger, at_ns = _running(), 0
    for number, (work_s, eval_s, stall_s) in enumerate(told):
        at_ns += (work_s + eval_s + stall_s) * S
        ledger.commit_step(number, at_ns, stall_s * S, {Category.EVAL: eval_s * S})
    assert sum(ledger.totals(at_ns).values()) == at_ns
    again = CommittedSteps.of(ledger.steps.columns())
    assert again == ledger.steps
    assert list(again) == list(ledger.steps) == [ledger.steps[at] for at in range(len(told))]
    assert again[:] == list(again)


def test_no_pause_is_kept_of_steps_that_are_not_kept() -> None:
    ledger = _running()
    ledger.commit_step(0, 2 * S, 0, {Category.EVAL: S})
    _steps(ledger, 1, STEPS_KEPT, 2 * S)
    assert ledger.steps.columns().pauses == []
    assert ledger.totals((STEPS_KEPT + 2) * S)[Category.EVAL] == S


def test_the_core_books_what_ranks_declare_and_writes_it_down() -> None:
    story = Months()
    story.run()
    ends = tuple(story.now_ns + 10 * S * (at + 1) for at in range(20))
    story.now_ns = ends[-1]
    pauses = (
        StepPause(3, PauseKind.EVALUATION, 4 * S),
        StepPause(3, PauseKind.SAVE, 2 * S),
        StepPause(9, PauseKind.OTHER, S),
    )
    story.tell(
        events.JobProgressed(
            job="j",
            generation=story.job.generation.number,
            first_step=1,
            end_ns=ends,
            stall_ns=(0,) * 20,
            pauses=pauses,
        ),
        after_s=0,
    )
    told = story.job.ledger.totals(story.now_ns)
    assert told[Category.EVAL] == 4 * S
    assert told[Category.PERSIST] == 2 * S
    assert told[Category.USER_PAUSE] == S
    assert decode_state(encode(story.core.state)) == story.core.state


def test_the_time_until_the_last_step_is_in_storage_is_no_gap() -> None:
    ledger = _running()
    at_ns = _steps(ledger, 0, 10, 0)
    ledger.enter(at_ns + 2 * S, Category.PERSIST)
    ledger.close(at_ns + 9 * S)
    told = ledger.totals(at_ns + 9 * S)
    assert told == {
        Category.PRODUCTIVE: 10 * S,
        Category.GAP: 2 * S,
        Category.PERSIST: 7 * S,
    }


def test_devices_that_a_job_did_without_are_degraded_and_the_sum_is_exact() -> None:
    ledger = _running()
    at_ns = _steps(ledger, 0, 10, 0)
    ledger.nodes = 2
    ledger.enter(at_ns, Category.IN_FLIGHT)
    at_ns = _steps(ledger, 10, 10, at_ns)
    told = device_totals(ledger, 3, 8, at_ns)
    assert told == {Category.PRODUCTIVE: (30 + 20) * 8 * S, Category.DEGRADED: 10 * 8 * S}
    assert sum(told.values()) == 3 * 8 * at_ns
    assert ettr_devices(told) == pytest.approx(5 / 6)
    assert ettr_devices({}) == 0
