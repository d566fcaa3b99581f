"""How often a job is snapshotted, from what it costs and what it saves."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_controller.core.cadence import Cadence, Cost, best, bounds, cost, decide, formula
from everstep_controller.core.facts import Settings
from everstep_controller.core.state import Incident, JobRecord
from unit.core.vault_story import S, job

MS = S // 1000


def _trained(steps: int, step_ns: int, stall_ns: int) -> JobRecord:
    """Return a job that has trained for a while, and stood still for each snapshot."""
    record = job()
    record.ledger.enter(0, "init.proc")
    record.ledger.begin_steps(0, warmup=False)
    for number in range(steps):
        record.ledger.commit_step(number, (number + 1) * (step_ns + stall_ns), stall_ns)
    record.last_step = steps - 1
    return record


def _decide(record: JobRecord, before: Cadence | None = None, at_s: int = 600) -> Cadence:
    return decide(before or Cadence(), record, Settings(), at_s * S)


def test_every_step_is_snapshotted_while_that_costs_next_to_nothing() -> None:
    assert _decide(_trained(200, S, 2 * MS)).every == 1


def test_what_costs_much_is_done_as_often_as_it_loses_least() -> None:
    record = _trained(200, S, 200 * MS)
    decided = _decide(record)
    known = cost(record, 600 * S)
    ideal = math.sqrt(2 * 0.2 * known.between_faults_ns / S)
    assert decided.every == min(60, round(ideal)) > 1
    assert "200.0 ms of a step of 1000 ms" in decided.reason


def test_the_change_begins_ahead_of_all_ranks_at_a_multiple() -> None:
    record = _trained(200, S, 200 * MS)
    decided = _decide(record)
    assert decided.start > 199 + 5
    assert decided.start % decided.every == 0


def test_nothing_changes_before_enough_was_measured_nor_more_than_once_a_minute() -> None:
    assert _decide(_trained(50, S, 200 * MS)) == Cadence()
    record = _trained(200, S, 200 * MS)
    recent = Cadence(7, 0, "so", 590 * S)
    assert _decide(record, recent) is recent


def test_a_small_difference_changes_nothing() -> None:
    record = _trained(200, S, 200 * MS)
    wanted = _decide(record).every
    near = Cadence(round(wanted / 1.1), 0, "so", 0)
    assert _decide(record, near) is near


def test_the_jobs_word_counts_at_once_within_the_operators() -> None:
    record = _trained(1, S, MS)
    record.snapshot_every_min = record.snapshot_every_max = 5
    assert _decide(record).every == 5
    strict = Settings(snapshot_every_max=3)
    assert bounds(record, strict) == (5, 5)
    record.snapshot_every_min = 0
    assert bounds(record, strict) == (1, 3)


def test_faults_of_the_job_make_snapshots_more_frequent_and_operators_do_not() -> None:
    record = _trained(200, S, 200 * MS)
    quiet = cost(record, 86_400 * S).between_faults_ns
    record.incidents = [Incident(str(i), 0, "operator", "a", "", 1) for i in range(5)]
    assert cost(record, 86_400 * S).between_faults_ns == quiet
    record.incidents += [Incident(str(i), 0, "node", "a", "", 1) for i in range(5)]
    assert cost(record, 86_400 * S).between_faults_ns == quiet / 6


def test_steps_without_a_snapshot_do_not_make_snapshots_look_cheap() -> None:
    record = _trained(200, S, 0)
    for step in record.ledger.steps[::10]:
        step.stall_ns = 300 * MS
    assert cost(record, 600 * S).stall_ns == 300 * MS


HOUR = 3600 * S
FORMULA_ALONE = Settings(snapshot_cost_ignored_ratio=0.0, snapshot_gap_ns_max=0)


@pytest.mark.parametrize(
    ("stall_ns", "between_ns", "step_ns", "steps"),
    [
        (0, 10 * HOUR, S, 1),
        (MS, 8 * S, S, 1),  # sqrt(2 x 0.001 x 8) = 0.13 s
        (50 * MS, HOUR, S, 19),  # sqrt(2 x 0.05 x 3600) = 18.97 s
        (200 * MS, 10 * HOUR, S, 120),  # sqrt(2 x 0.2 x 36000) = 120 s
        (200 * MS, 10 * HOUR, 5 * S, 24),
        (2 * S, 100 * HOUR, 10 * S, 120),  # sqrt(2 x 2 x 360000) = 1200 s
        (2 * S, 100 * HOUR, 1300 * S, 1),
    ],
)
def test_the_interval_is_youngs(stall_ns: int, between_ns: int, step_ns: int, steps: int) -> None:
    known = Cost(200, step_ns, stall_ns, between_ns)
    assert formula(known) == best(known, FORMULA_ALONE) == steps


def test_a_cost_below_the_ignored_share_thins_nothing_out() -> None:
    cheap, dear = (Cost(200, S, stall, 10 * HOUR) for stall in (4 * MS, 5 * MS))
    assert best(cheap, Settings()) == 1
    assert best(dear, Settings()) == formula(dear) == 19
    assert best(cheap, FORMULA_ALONE) == formula(cheap) == 17


def test_no_more_training_lies_between_two_snapshots_than_the_operator_allows() -> None:
    known = Cost(200, 7 * S, 2 * S, 100 * HOUR)
    assert best(known, Settings()) == 8
    assert best(known, Settings(snapshot_gap_ns_max=5 * S)) == 1
    assert best(known, FORMULA_ALONE) == formula(known) == 171


def test_the_operators_settings_decide() -> None:
    record = _trained(200, S, 200 * MS)
    decided = decide(Cadence(), record, FORMULA_ALONE, 600 * S)
    assert decided.every == formula(cost(record, 600 * S)) > 60


@settings(deadline=None)
@given(st.integers(1, 10**11), st.integers(0, 10**10), st.floats(1e10, 1e16, allow_nan=False))
def test_the_interval_is_at_least_one_step_and_loses_a_minute_at_most(
    step_ns: int, stall_ns: int, between_ns: float
) -> None:
    every = best(Cost(200, step_ns, stall_ns, between_ns), Settings())
    assert every == 1 or every * step_ns <= 60 * S
