"""Stops that an operator orders: at a recoverable step, for good, and accounted as planned."""

import pytest

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.fleet.incidents import failures_of_job
from everstep_controller.core.model.job import JobState
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.journal.codec import decode_state, encode
from unit.core.chosen_settings import STALLS_IGNORED
from unit.core.planned.test_restarts import PlannedStory
from unit.core.test_decisions import S


class _Stopping(PlannedStory):
    def stop(self, at_step: int | None = None) -> list[actions.Action]:
        return self.tell(events.StopOrdered("j", "ops", "budget is spent", at_step))

    def ends(self) -> bool:
        return self.state_of_job() is JobState.ENDED


def _begun() -> _Stopping:
    story = _Stopping()
    story.begin()
    return story


def test_a_stopped_job_ends_after_the_step_that_was_named_and_does_not_begin_again() -> None:
    story = _begun()
    story.stop(at_step=6)
    story.recoverable(5)
    assert story.state_of_job() is JobState.RUNNING
    story.recoverable(6)
    assert story.state_of_job() is JobState.STOPPING
    story.stop_all()
    assert story.ends()
    kept = "after step 6, which stays in memory of n0, n1 for 30 min"
    assert story.job.reason == f"stopped by operator ops: budget is spent ({kept})"
    assert not story.job.ending.succeeded
    assert not story.is_planned()
    assert story.job.lineage.recoverable_step == 6


def test_a_stop_does_not_wait_for_paused_automation_and_says_what_it_waits_for() -> None:
    story = _begun()
    story.tell(events.AutomationPaused("j", "ops", "somebody looks"))
    story.stop(at_step=6)
    assert story.job.planned is not None
    waits = forecast.waits_for(story.core.state, story.job, story.job.planned)
    assert "paused" not in waits
    story.recoverable(6)
    assert story.state_of_job() is JobState.STOPPING


def test_its_time_is_planned_and_no_failure_of_it() -> None:
    story = _begun()
    story.stop(at_step=6)
    story.recoverable(6)
    story.stop_all()
    totals = story.job.ledger.totals(story.now_ns)
    assert totals[Category.PLANNED] > 0
    assert not [name for name in totals if name.startswith(("inc.", "lost."))]
    assert failures_of_job(story.core.state, story.job) == 0


def test_without_a_step_the_controller_chooses_the_next_that_can_be_kept() -> None:
    story = _begun()
    story.stop()
    wish = story.job.planned
    assert wish is not None
    assert wish.after_step is not None
    assert wish.after_step > 3
    said = forecast.describe(story.job, wish)
    assert said.startswith(f"the end of the job at the boundary after {wish.after_step} is planned")
    assert forecast.undo(story.core.state, story.job, wish) == "everstep job j stop --cancel"


def test_a_job_that_waits_for_nodes_ends_at_once() -> None:
    story = _begun()
    for node in ("n0", "n1", "n2"):
        story.tell(events.OperatorIsolated(node, "ops", "smoke"))
    story.stop_all()
    assert story.state_of_job() is JobState.WAITING_CAPACITY
    story.stop()
    assert story.ends()
    assert "budget is spent" in story.job.reason


def test_a_job_that_is_still_forming_ends_at_once() -> None:
    story = _Stopping()
    story.connect("n0")
    story.join("n0")
    assert story.state_of_job() is JobState.FORMING
    story.stop()
    assert story.ends()


def test_a_fault_before_the_boundary_ends_it_as_well() -> None:
    story = _begun()
    story.stop(at_step=90)
    story.exit_rank("n0")
    assert story.state_of_job() is JobState.STOPPING
    story.stop_all()
    assert story.ends()
    assert "budget is spent" in story.job.reason


def test_paused_automation_keeps_no_job_from_being_stopped() -> None:
    story = _begun()
    story.tell(events.AutomationPaused("j", "ops", "look"))
    story.stop(at_step=6)
    story.recoverable(6)
    story.stop_all()
    assert story.ends()


def test_what_is_wanted_of_it_besides_does_not_take_the_place_of_its_end() -> None:
    story = _begun()
    story.stop(at_step=9)
    story.restart(at_step=6)
    story.drain("n1")
    assert story.job.planned is not None
    assert (story.job.planned.kind, story.job.planned.after_step) == ("stop", 9)


def test_a_stop_takes_the_place_of_a_restart_that_was_planned() -> None:
    story = _begun()
    story.restart(at_step=6)
    story.stop()
    story.recoverable(6)
    story.stop_all()
    assert story.ends()


def test_a_stop_that_was_taken_back_leaves_the_job_to_train() -> None:
    story = _begun()
    story.stop(at_step=6)
    assert restarts.cancel_problem(story.core.state, story.job) == ""
    told = story.tell(events.RestartCancelled("j", "bob", "there is more"))
    said = [one.message for one in told if isinstance(one, actions.Announce)]
    assert any("took back the stop of j that ops had ordered" in message for message in said)
    story.recoverable(8)
    assert story.state_of_job() is JobState.RUNNING


def test_a_controller_that_starts_again_still_stops_it() -> None:
    story = _begun()
    story.stop(at_step=6)
    story.core = Core(decode_state(encode(story.core.state)))
    story.recoverable(6)
    story.stop_all()
    assert story.ends()


@pytest.mark.parametrize("late_s", [700])
def test_a_step_that_does_not_become_recoverable_is_not_waited_for(late_s: int) -> None:
    story = _begun()
    story.stop(at_step=4)
    story.train(4, 5)
    timers = story.core.state.timers
    (due,) = [name for name in timers if name.startswith("planned/")]
    story.now_ns = max(story.now_ns + late_s * S, timers[due])
    story.tell(events.TimerDue(due))
    story.stop_all()
    assert story.ends()


_REACHED = (Phase.STARTED, Phase.ATTACHED, Phase.RESTORED)
_BEGINNINGS = {
    JobState.STARTING: 1,
    JobState.RESTORING: 2,
    JobState.WARMING: 3,
}


class _Beginning(_Stopping):
    """A job whose ranks come so far and no further, each phase taking longer than ten seconds."""

    def begin_until(self, state: JobState) -> None:
        for node in ("n0", "n1"):
            self.join(node)
        self.choose(None)
        for phase in _REACHED[: _BEGINNINGS[state]]:
            self.now_ns += 20 * S
            for node in ("n0", "n1"):
                reached = reports.PhaseReached(1, phase)
                self.tell(events.Reported(self.origin(node), self.now_ns, reached, "j"))
        assert self.state_of_job() is state

    def wait_out(self, seconds: float) -> None:
        end_ns = self.now_ns + int(seconds * S)
        while due := [(at, name) for name, at in self.core.state.timers.items() if at <= end_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            self.tell(events.TimerDue(name), 0)


@pytest.mark.parametrize("state", _BEGINNINGS)
def test_a_job_is_stopped_and_restarted_within_ten_seconds_in_any_state_before_its_first_step(
    state: JobState,
) -> None:
    stopped, restarted = _Beginning(), _Beginning()
    stopped.begin_until(state)
    stopped.stop()
    stopped.wait_out(10)
    stopped.stop_all()
    assert stopped.ends()
    restarted.begin_until(state)
    restarted.restart()
    restarted.wait_out(10)
    assert restarted.state_of_job() is JobState.STOPPING
    restarted.stop_all()
    restarted.choose(None)
    assert (restarted.state_of_job(), restarted.job.generation.number) == (JobState.STARTING, 2)
    assert not restarted.is_planned()


@pytest.mark.parametrize("state", _BEGINNINGS)
def test_a_job_that_is_to_stop_at_a_named_step_waits_for_it_and_else_says_when_it_is_stopped(
    state: JobState,
) -> None:
    story = _Beginning()
    story.begin_until(state)
    story.stop(at_step=6)
    story.wait_out(60)
    assert story.state_of_job() is state
    story.stop()
    assert story.job.planned is not None
    said = forecast.waits_for(story.core.state, story.job, story.job.planned)
    assert said == f"j is {state.value}: it is stopped within 10 s if it makes no step"


def test_a_job_that_stands_still_makes_no_step_recoverable_and_is_not_waited_for() -> None:
    story = _begun()
    story.train(4, 5)
    story.job.state = JobState.STALLED
    story.stop()
    due = story.now_ns + 10 * S
    assert story.job.planned is not None
    assert restarts.still_from_ns(story.job, story.job.planned) == due


class _Evaluating(_Beginning):
    """A job that makes steps, and then none for a while, as in a pause that it declares."""

    def __init__(self) -> None:
        super().__init__(settings=STALLS_IGNORED)

    def evaluate(self, *, step_s: float = 1.0, for_s: float = 0.0) -> "_Evaluating":
        self.begin()
        for step in range(4, 10):
            self.now_ns += int(step_s * S)
            self.train(step, saved=min(step, 7))
        self.now_ns += int(for_s * S)
        assert self.state_of_job() is JobState.RUNNING
        assert (self.job.lineage.last_step, self.job.lineage.recoverable_step) == (9, 7)
        return self

    def stand_still(self) -> None:
        for node in ("n0", "n1"):
            word = reports.RanksStandStill(
                generation=1, step=self.job.lineage.last_step, since_boot_ns=0, usual_ns=S
            )
            self.tell(events.Reported(self.origin(node), self.now_ns, word, "j"))

    def order(self, kind: str) -> None:
        if kind == "stop":
            self.stop()
        else:
            self.restart()


@pytest.mark.parametrize("kind", ["restart", "stop"])
@pytest.mark.parametrize(("step_s", "for_s"), [(1.0, 0.0), (1.0, 600.0), (4.0, 0.1), (20.0, 45.0)])
def test_an_order_is_carried_out_within_ten_seconds_of_an_evaluation(
    kind: str, step_s: float, for_s: float
) -> None:
    story = _Evaluating().evaluate(step_s=step_s, for_s=for_s)
    story.order(kind)
    story.wait_out(9)
    assert story.state_of_job() is JobState.RUNNING, "copies of its newest step may still arrive"
    story.wait_out(10)
    assert story.state_of_job() is JobState.STOPPING
    assert "no step was made since step 9, and 7 is the newest recoverable" in story.job.reason
    story.stop_all()
    if kind == "stop":
        assert story.ends()
        assert story.job.lineage.recoverable_step == 7
    else:
        assert story.state_of_job() is JobState.REPLANNING


def test_copies_that_arrive_meanwhile_end_the_wait() -> None:
    story = _Evaluating().evaluate(for_s=60)
    story.restart()
    story.wait_out(4)
    story.tell(events.StepRecoverable("j", 1, 9))
    assert story.state_of_job() is JobState.STOPPING
    assert "no step was made since step 9, which is recoverable" in story.job.reason


def test_where_all_nodes_say_that_ranks_stand_still_long_steps_are_not_waited_for() -> None:
    story = _Evaluating().evaluate(step_s=60)
    story.restart()
    story.stand_still()
    story.wait_out(9)
    assert story.state_of_job() is JobState.RUNNING
    story.wait_out(10)
    assert story.state_of_job() is JobState.STOPPING


def test_a_step_of_the_usual_length_is_not_cut_off() -> None:
    story = _Evaluating().evaluate(step_s=15)
    story.restart()
    planned = story.job.planned
    assert planned is not None
    assert planned.after_step is not None
    for step in range(10, planned.after_step + 1):
        begun_ns = story.now_ns
        story.wait_out(15)
        assert story.state_of_job() is JobState.RUNNING, step
        story.now_ns = begun_ns + 15 * S
        story.train(step, saved=step)
    assert story.state_of_job() is JobState.STOPPING
    assert f"step {planned.after_step} is recoverable" in story.job.reason


def test_ranks_that_are_held_after_the_chosen_step_wait_for_its_copies() -> None:
    story = _Evaluating().evaluate()
    story.restart()
    planned = story.job.planned
    assert planned is not None
    assert planned.after_step is not None
    story.train(*range(10, planned.after_step + 1), saved=7)
    story.stand_still()
    story.wait_out(120)
    assert story.state_of_job() is JobState.RUNNING
    story.tell(events.StepRecoverable("j", 1, planned.after_step))
    assert story.state_of_job() is JobState.STOPPING
    assert f"step {planned.after_step} is recoverable" in story.job.reason


def test_a_named_step_is_waited_for_through_an_evaluation() -> None:
    story = _Evaluating().evaluate(for_s=60)
    story.restart(at_step=12)
    story.stand_still()
    story.wait_out(60)
    assert story.state_of_job() is JobState.RUNNING
