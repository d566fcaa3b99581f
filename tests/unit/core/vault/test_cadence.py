"""How often a job is snapshotted, from what it costs and what it saves."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common.reports import Turnover
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.fleet.incidents import failures_ns_of_job
from everstep_controller.core.model.job import Cause, JobRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import COSTS_KEPT, Cadence, SnapshotCosts
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.cadence import (
    CadenceBasis,
    SnapshotCost,
    SnapshotPhase,
    best_interval,
    bring_together,
    decide_cadence,
    interval_bounds,
    measure_cost,
    young_interval,
)
from unit.core.fleet.job_incidents import add_incidents
from unit.core.vault.vault_story import S, job

MS = S // 1000
_BASIS = CadenceBasis((), Settings())


def _failed(*failures_ns: int) -> CadenceBasis:
    return CadenceBasis(failures_ns, Settings())


def _trained(steps: int, step_ns: int, stall_ns: int) -> JobRecord:
    """Return a job that has trained for a while, and stood still for each snapshot."""
    record = job()
    record.ledger.enter(0, Category.INIT_PROC)
    record.ledger.begin_steps(0, warmup=False)
    for number in range(steps):
        record.ledger.commit_step(number, (number + 1) * (step_ns + stall_ns), stall_ns)
        record.snapshot_costs.record(record.cadence, number, stall_ns)
    record.lineage.last_step = steps - 1
    return record


def _decide(record: JobRecord, before: Cadence | None = None, at_s: int = 600) -> Cadence:
    return decide_cadence(before or Cadence(), record, _BASIS, at_s * S)


def test_every_step_is_snapshotted_while_that_costs_next_to_nothing() -> None:
    assert _decide(_trained(200, S, 2 * MS)).every == 1


def test_what_costs_much_is_done_as_often_as_it_loses_least() -> None:
    record = _trained(200, S, 200 * MS)
    decided = _decide(record)
    # A fifth of a step, of which snapshots may take a hundredth.
    assert decided.every == 20
    assert decided.reason.startswith("one step in 20 is snapshotted, and a failure costs up to 20 ")
    assert "200.0 ms of a step of 1000 ms, all of them together 0.99 % of" in decided.reason


def test_the_change_begins_ahead_of_all_ranks_and_no_later() -> None:
    record = _trained(200, S, 200 * MS)
    assert _decide(record).start == 199 + 5 + 2
    # Each step until then costs a stall, so it is not a step's work that counts.
    dear = _trained(200, 20 * MS, S)
    assert _decide(dear).start == 199 + 5 + 2


def test_nothing_changes_before_enough_was_measured_nor_more_than_once_a_minute() -> None:
    assert _decide(_trained(50, S, 200 * MS)) == Cadence()
    record = _trained(200, S, 200 * MS)
    recent = Cadence(7, 0, "so", 590 * S)
    assert _decide(record, recent) is recent


def test_what_snapshots_cost_while_standbys_are_made_says_nothing() -> None:
    record = _trained(200, 100 * MS, 20 * MS)
    calm_ns = 62 * 120 * MS
    making = CadenceBasis((), Settings(), busy_until_ns=600 * S)
    assert decide_cadence(Cadence(), record, making, 600 * S + calm_ns - 1) == Cadence()
    assert decide_cadence(Cadence(), record, making, 600 * S + calm_ns).every == 20


def test_what_was_decided_early_is_looked_at_again_after_a_minute_and_once() -> None:
    record = _trained(200, S, MS)
    early = Cadence(50, 0, "so", 200 * S)
    assert _decide(record, early, at_s=259) is early
    again = _decide(record, early, at_s=260)
    assert (again.every, again.returns) == (1, 1)
    late = replace(early, changed_ns=301 * S)
    assert _decide(record, late, at_s=1200) is late
    assert _decide(record, replace(early, returns=1), at_s=1200) == replace(early, returns=1)


def test_a_small_difference_changes_nothing() -> None:
    record = _trained(200, S, 200 * MS)
    wanted = _decide(record).every
    near = Cadence(round(wanted / 1.1), 0, "so", 0)
    assert _decide(record, near) is near


def test_the_jobs_word_counts_at_once_within_the_operators() -> None:
    record = _trained(1, S, MS)
    record.spec = replace(record.spec, snapshot_every_min=5, snapshot_every_max=5)
    assert _decide(record).every == 5
    strict = Settings(snapshot_every_max=3)
    assert interval_bounds(record, strict) == (5, 5)
    record.spec = replace(record.spec, snapshot_every_min=0)
    assert interval_bounds(record, strict) == (1, 3)


def _between_faults_ns(failures_ns: Sequence[int], now_ns: int) -> float:
    return measure_cost(_trained(200, S, 200 * MS), failures_ns, now_ns).between_faults_ns


def test_failures_of_the_job_count_and_an_operators_restarts_do_not() -> None:
    record, state = _trained(200, S, 200 * MS), State()
    add_incidents(state, record, *[Cause.OPERATOR] * 5)
    assert failures_ns_of_job(state, record) == []
    add_incidents(state, record, *[Cause.NODE] * 5)
    assert len(failures_ns_of_job(state, record)) == 5


def test_before_its_first_failure_a_job_is_expected_to_fail_as_nodes_like_its_own() -> None:
    # 6.5 in 1,000 node-days, on three nodes.
    assert _between_faults_ns((), 0) == pytest.approx(1000 / 6.5 / 3 * 24 * HOUR)


def test_after_it_only_the_job_says_how_often_it_fails() -> None:
    assert _between_faults_ns((2 * HOUR,), 3 * HOUR) == 3 * HOUR
    assert _between_faults_ns((2 * HOUR, 4 * HOUR), 6 * HOUR) == 3 * HOUR


def test_failures_within_minutes_count_at_once_and_less_with_each_quiet_hour() -> None:
    soon = (100 * HOUR, 100 * HOUR + 60 * S, 100 * HOUR + 180 * S)
    assert _between_faults_ns(soon[:2], soon[1]) == 50 * HOUR + 30 * S
    assert _between_faults_ns(soon, soon[-1]) == 90 * S
    assert _between_faults_ns(soon, soon[-1] + HOUR) == HOUR / 2 + 90 * S
    assert _between_faults_ns(soon, soon[-1] + 1000 * HOUR) == pytest.approx(367 * HOUR, rel=0.01)


def test_two_faults_in_three_minutes_keep_the_third_from_costing_a_hundred_steps() -> None:
    # Of a job that was told "a fault is expected every 615 h" after 200 steps.
    record = _trained(200, 300 * MS, 300 * MS)
    rare = _decide(record, at_s=61)
    assert rare.every == 100
    decided = decide_cadence(rare, record, _failed(70 * S, 250 * S), 250 * S)
    assert decided.every == round(math.sqrt(2 * 0.3 * 125) / 0.3) == 29
    assert decided.reason.endswith("a fault is expected every 2.1 min")
    assert decided.returns == rare.returns


def test_a_failure_does_not_make_snapshots_rarer_before_they_are_measured_anew() -> None:
    record = _trained(200, S, 200 * MS)
    record.ledger.begin_steps(300 * S, warmup=True)
    often = Cadence(2, 0, "so", 100 * S)
    assert decide_cadence(often, record, _failed(300 * S), 400 * S) is often


def test_a_cost_that_nobody_measured_changes_nothing() -> None:
    record = _trained(200, S, 0)
    rare = Cadence(50, 0, "so", 0)
    assert _decide(record, rare, at_s=7200) is rare


def _costs(cadence: Cadence, stalls: list[int]) -> SnapshotCosts:
    found = SnapshotCosts()
    for step, stall_ns in enumerate(stalls):
        found.record(cadence, step, stall_ns)
    return found


def test_a_snapshot_costs_what_its_own_step_stood_still_however_rare_it_is() -> None:
    trifle, dear = 2_000, 300 * MS
    rare = [dear if step % 10 == 0 else trifle for step in range(200)]
    assert abs(_costs(Cadence(10), rare).usual_ns - dear) <= trifle
    # A script that snapshots some steps of its own choice.
    assert _costs(Cadence(), [dear, 0, 0, 0] * 20).usual_ns == dear
    assert _costs(Cadence(), []).usual_ns == 0


def test_the_rest_of_an_overlapped_copy_is_a_cost_of_the_snapshot_before() -> None:
    stalls = [50 * MS, 20 * MS, 0, 0] * 20
    assert _costs(Cadence(4), stalls).usual_ns == 70 * MS


def test_one_slow_snapshot_among_many_is_outlasted_and_a_lasting_change_is_followed() -> None:
    stalls = [10 * MS] * 40
    stalls[20] = 10 * S
    assert _costs(Cadence(), stalls).usual_ns == 10 * MS
    assert _costs(Cadence(), [10 * MS] * 40 + [90 * MS] * COSTS_KEPT).usual_ns == 90 * MS


def test_steps_before_a_cadence_begins_say_nothing() -> None:
    assert _costs(Cadence(1, 30), [MS] * 30 + [9 * MS]).newest_ns == [9 * MS]


class _Job:
    """A job in virtual time whose cadence is decided every second, as its vault does."""

    def __init__(self, step_ns: int, stall: Callable[[int], int], floor_ns: int = 0) -> None:
        """``floor_ns``: a step waits until it has taken so long, whatever it did meanwhile."""
        self.record = job()
        self.record.ledger.enter(0, Category.INIT_PROC)
        self.record.ledger.begin_steps(0, warmup=False)
        self.changes: list[tuple[int, int]] = []
        self._step_ns, self._stall, self.floor_ns = step_ns, stall, floor_ns
        self._now_ns = self._looked_ns = 0

    def train(self, seconds: int) -> None:
        until_ns = self._now_ns + seconds * S
        step = -1 if self.record.lineage.last_step is None else self.record.lineage.last_step
        while self._now_ns < until_ns:
            step += 1
            record = self.record
            named = record.cadence.names(step) or step < record.cadence.start
            # Not to save costs two microseconds.
            stall_ns = self._stall(record.cadence.every) if named else 2_000
            self._now_ns += max(self.floor_ns, self._step_ns + stall_ns)
            record.ledger.commit_step(step, self._now_ns, stall_ns)
            record.snapshot_costs.record(record.cadence, step, stall_ns)
            record.lineage.last_step = step
            if self._now_ns - self._looked_ns >= S:
                self._look()

    def _look(self) -> None:
        self._looked_ns = self._now_ns
        decided = decide_cadence(self.record.cadence, self.record, _BASIS, self._now_ns)
        if decided is not self.record.cadence:
            self.record.cadence = decided
            self.changes.append((self._now_ns // S, decided.every))


@settings(deadline=None, max_examples=8)
@given(
    step_ms=st.sampled_from([90, 300, 2000]),
    # Of a step, around the share that is ignored: 1 %.
    share=st.sampled_from([0.001, 0.009, 0.0101, 0.012, 0.05, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_of_equal_steps_the_cadence_settles_and_stays(
    step_ms: int, share: float, seed: int
) -> None:
    noise = random.Random(seed)
    run = _Job(step_ms * MS, lambda _: int(step_ms * MS * share * noise.uniform(0.9, 1.1)))
    run.train(1800)
    assert len(run.changes) <= 1
    assert all(at_s < 400 for at_s, _ in run.changes)


def test_steps_that_wait_anyway_cost_no_more_time_after_a_failure_than_was_decided() -> None:
    # As of a script that waits for its data: a snapshot takes 250 of the 300 ms that it waits.
    run = _Job(20 * MS, lambda _: 250 * MS, floor_ns=300 * MS)
    run.train(600)
    (first_s, first), (second_s, second), *later = run.changes
    # It seemed that a step takes 50 ms.
    assert first == 500
    # As soon as steps without a snapshot have told: 5 s of lead, and as many as a reference takes.
    assert second_s - first_s < 30
    assert second == 25_000 // 300
    assert later == []
    assert "25 s" in run.record.cadence.reason
    assert "a step without a snapshot takes 300 ms" in run.record.cadence.reason


@pytest.mark.parametrize(("fast", "slow"), [(40, 40), (150, 150), (600, 150), (974, 26)])
def test_steps_that_change_their_length_again_and_again_do_not_change_the_cadence_each_time(
    fast: int, slow: int
) -> None:
    run = _Job(200 * MS, lambda _: 40 * MS)
    for _ in range(3600):
        step = run.record.lineage.last_step or 0
        run.floor_ns = 0 if step % (fast + slow) < fast else 600 * MS
        run.train(1)
    assert len(run.changes) <= 12


def test_snapshots_that_are_dear_only_when_they_are_many_do_not_take_turns() -> None:
    run = _Job(90 * MS, lambda every: 20 * MS if every == 1 else MS // 10)
    run.train(3 * 3600)
    returns = [at_s for at_s, every in run.changes if every == 1]
    waits = [later - earlier for earlier, later in itertools.pairwise(returns)]
    assert waits == sorted(waits)
    assert len(returns) <= 3


def test_a_cost_that_goes_for_good_brings_every_step_back() -> None:
    dear = True
    run = _Job(90 * MS, lambda _: 20 * MS if dear else MS // 10)
    run.train(1000)
    assert run.changes[0][1] == 23
    dear = False
    run.train(1500)
    assert run.changes[-1][1] == 1


HOUR = 3600 * S
FORMULA_ALONE = Settings(snapshot_cost_ignored_ratio=0.0, snapshot_interval_max_ns=0)


@pytest.mark.parametrize(
    ("stall_ns", "between_ns", "step_ns", "steps"),
    [
        (MS, 8 * S, S, 1),  # sqrt(2 x 0.001 x 8) = 0.13 s
        (50 * MS, HOUR, S, 19),  # sqrt(2 x 0.05 x 3600) = 18.97 s
        (200 * MS, 10 * HOUR, S, 120),  # sqrt(2 x 0.2 x 36000) = 120 s
        (200 * MS, 10 * HOUR, 5 * S, 24),
        (2 * S, 100 * HOUR, 10 * S, 120),  # sqrt(2 x 2 x 360000) = 1200 s
        (2 * S, 100 * HOUR, 1300 * S, 1),
    ],
)
def test_the_interval_is_youngs(stall_ns: int, between_ns: int, step_ns: int, steps: int) -> None:
    known = SnapshotCost(step_ns, stall_ns, between_ns)
    assert young_interval(known) == best_interval(known, FORMULA_ALONE) == steps


def test_a_cost_below_the_ignored_share_thins_nothing_out() -> None:
    cheap, dear = (SnapshotCost(S, stall, 10 * HOUR) for stall in (9 * MS, 50 * MS))
    assert best_interval(cheap, Settings()) == 1
    assert best_interval(dear, Settings()) == 5
    assert best_interval(dear, FORMULA_ALONE) == young_interval(dear) == 60
    assert best_interval(cheap, FORMULA_ALONE) == young_interval(cheap) == 25


def test_noise_around_the_share_changes_nothing() -> None:
    def wanted(stall_ms: int, every: int) -> int:
        return best_interval(SnapshotCost(S, stall_ms * MS, 10 * HOUR), Settings(), every)

    assert [wanted(ms, 1) for ms in (9, 10, 11, 13)] == [1, 1, 1, 2]
    assert [wanted(ms, 5) for ms in (33, 34, 50, 59, 61)] == [4, 5, 5, 5, 7]


def test_no_more_training_lies_between_two_snapshots_than_the_operator_allows() -> None:
    known = SnapshotCost(7 * S, 2 * S, 100 * HOUR)
    assert best_interval(known, Settings()) == 8
    assert best_interval(known, Settings(snapshot_interval_max_ns=5 * S)) == 1
    assert best_interval(known, FORMULA_ALONE) == young_interval(known) == 171


def test_the_operators_settings_decide() -> None:
    record = _trained(200, S, 200 * MS)
    decided = decide_cadence(Cadence(), record, CadenceBasis((), FORMULA_ALONE), 600 * S)
    assert decided.every == young_interval(measure_cost(record, (), 600 * S)) > 60


@settings(deadline=None)
@given(st.integers(1, 10**11), st.integers(1, 10**10), st.floats(1e10, 1e16, allow_nan=False))
def test_the_interval_loses_a_minute_at_most_and_one_step_while_that_costs_a_hundredth(
    step_ns: int, stall_ns: int, between_ns: float
) -> None:
    every = best_interval(SnapshotCost(step_ns, stall_ns, between_ns), Settings())
    assert every == 1 or every * step_ns <= 60 * S
    assert every == 1 or stall_ns > 0.01 * step_ns
    # A snapshot less would keep them above their share: it loses no more than it must.
    assert every == 1 or stall_ns > 0.0099 * (every - 1) * step_ns


def _slots(p50_ms: int, every: int = 1) -> Cadence:
    """Return what is decided of steps of 100 ms with slots that take so long to be free."""
    record = _trained(200, 100 * MS, MS // 10)
    basis = CadenceBasis((), Settings(), Turnover(3, p50_ms * MS, p50_ms * MS))
    return decide_cadence(Cadence(every), record, basis, 1000 * S)


def test_slots_that_are_free_again_in_time_thin_nothing_out() -> None:
    assert _slots(90).every == 1
    # Two more snapshots are taken while a slot is.
    assert _slots(300).every == 1
    assert _slots(310).every == 1


def test_snapshots_are_as_rare_as_slots_need_to_get_free() -> None:
    assert _slots(400).every == 2
    decided = _slots(1000)
    assert decided.every == 5
    assert decided.reason == (
        "one step in 5 is snapshotted, and a failure costs up to 5 steps (0.5 s): a rank has 3"
        " slots, each of which is free again 1 s after its snapshot"
    )
    # It stays: until the next snapshot a slot is taken in any case.
    assert _slots(900 + 500, every=5).every == 5
    assert _slots(100 + 500, every=5).every == 1


def test_the_jobs_word_counts_more_than_its_slots() -> None:
    record = _trained(200, 100 * MS, MS // 10)
    record.spec = replace(record.spec, snapshot_every_max=2)
    basis = CadenceBasis((), Settings(), Turnover(3, S, S))
    assert decide_cadence(Cadence(), record, basis, 600 * S).every == 2


def _apart(step: int | None = 99) -> SnapshotPhase:
    """Return the phase of ranks that have saved different steps for a second, seen at 600 s."""
    return SnapshotPhase().after(step, (), 0).after(step, (101,), 599 * S)


def test_ranks_out_of_phase_meet_at_steps_that_are_ahead_of_all_and_far_apart() -> None:
    record = _trained(200, 20 * MS, MS)
    met = bring_together(Cadence(), record, _apart(), None, 600 * S)
    # Two seconds of steps apart where nobody measures slots; the first of them is ahead of all.
    assert met.every == math.ceil(2 * S / (21 * MS))
    assert met.start % met.every == 0
    assert met.start >= 199 + 1.5 * S // (21 * MS)
    assert met.usual_every == 1
    assert "none of which can be restored" in met.reason
    # It is the only rule until they have met, whatever snapshots cost.
    assert _decide(_trained(200, S, 200 * MS), met) is met
    assert bring_together(met, record, _apart(), None, 601 * S) is met


def test_ranks_meet_as_soon_as_slots_are_measured_to_be_free_again() -> None:
    record = _trained(200, 20 * MS, MS)
    met = bring_together(Cadence(), record, _apart(), Turnover(3, 90 * MS, 150 * MS), 600 * S)
    assert met.every == math.ceil(150 / 21)
    # A second of rows that are not told yet, and half a second to be heard.
    assert 0 <= met.start - (199 + math.ceil(1500 / 21) + 2) < met.every
    again = bring_together(met, record, SnapshotPhase(met.start), None, 601 * S)
    assert again.start - 199 <= (1500 + met.every * 21) / 21 + 3


def test_ranks_that_have_met_go_on_as_before() -> None:
    record = _trained(200, 20 * MS, MS)
    met = bring_together(Cadence(5), record, _apart(), None, 600 * S)
    assert met.usual_every == 5
    before = SnapshotPhase().after(met.start - 1, (), 603 * S)
    assert bring_together(met, record, before, None, 603 * S) is met
    again = bring_together(met, record, SnapshotPhase(met.start), None, 603 * S)
    assert (again.every, again.usual_every) == (5, 0)
    assert again.start > 199


def test_a_new_generation_is_in_phase_and_meets_nowhere() -> None:
    met = bring_together(Cadence(5), _trained(200, 20 * MS, MS), _apart(), None, 600 * S)
    begun = bring_together(
        replace(met, start=0), _trained(200, 20 * MS, MS), SnapshotPhase(), None, 700 * S
    )
    assert begun == Cadence(5, 0, "one step in 5 is snapshotted again", 700 * S)


def test_ranks_that_do_not_meet_meet_at_fewer_steps() -> None:
    record = _trained(200, 20 * MS, MS)
    met = bring_together(Cadence(), record, _apart(), None, 600 * S)
    rarer = bring_together(met, record, _apart(), None, 620 * S)
    assert (rarer.every, rarer.usual_every) == (2 * met.every, 1)


def test_a_step_that_one_rank_missed_is_no_phase() -> None:
    record, usual = _trained(200, 20 * MS, MS), Cadence()
    once = SnapshotPhase(99).after(99, (101,), 600 * S)
    assert once.looks_again_s is not None
    assert bring_together(usual, record, once, None, 600 * S) is usual
    # A newer step became recoverable: they are in phase, whatever was missed before.
    later = once.after(102, (104,), 601 * S)
    assert bring_together(usual, record, later, None, 601 * S) is usual
    assert SnapshotPhase(102).looks_again_s is None
