"""A planned restart that is taken back: the job goes on as it is, unless more is planned."""

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState, Planned
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.journal.codec import decode_state, encode
from unit.core.planned.test_restarts import PlannedStory
from unit.core.test_decisions import S


class _Cancelling(PlannedStory):
    def cancel(self, reason: str = "") -> list[actions.Action]:
        return self.tell(events.RestartCancelled("j", "bob", reason))

    def problem(self) -> str:
        return restarts.cancel_problem(self.core.state, self.job)

    def wish(self) -> Planned:
        found = forecast.pending(self.core.state, self.job)
        assert found is not None
        return found

    def waits(self) -> str:
        return forecast.waits_for(self.core.state, self.job, self.wish())

    def undo(self) -> str:
        return forecast.undo(self.core.state, self.job, self.wish())

    def maintain(self, node: str, after_s: int = 0) -> None:
        begin_ns = self.now_ns + after_s * S + S // 10
        self.tell(
            events.MaintenanceOrdered(
                nodes=(node,), begin_ns=begin_ns, end_ns=begin_ns + 3600 * S, operator="ann"
            )
        )


def _begun(*, spare: bool = True) -> _Cancelling:
    story = _Cancelling()
    story.begin(spare=spare)
    return story


def test_a_job_whose_restart_was_taken_back_trains_past_the_step_that_was_named() -> None:
    story = _begun()
    story.restart(at_step=6)
    story.cancel()
    story.recoverable(8)
    assert story.state_of_job() is JobState.RUNNING
    assert not story.is_planned()
    assert not [name for name in story.core.state.timers if name.startswith("planned/")]


def test_it_is_told_who_took_back_whose_restart_and_why() -> None:
    story = _begun()
    story.restart(at_step=6, reason="new code")
    told = [a for a in story.cancel("a bug in it") if isinstance(a, actions.Announce)]
    (said,) = [one.message for one in told if one.reason == "RestartCancelled"]
    assert all(word in said for word in ("bob", "ops", "new code", "a bug in it"))


def test_a_drain_that_a_restart_had_served_too_is_planned_again() -> None:
    story = _begun()
    story.drain("n1")
    story.restart()
    assert story.wish().kind == "restart"
    story.cancel()
    assert story.wish().kind == "drain"
    story.recoverable(story.wish().after_step or 0)
    story.stop_all()
    assert story.job.generation.members == ["n0", "n2"]


def test_another_restart_may_be_ordered_after_that() -> None:
    story = _begun()
    story.restart(at_step=6)
    story.cancel()
    story.restart(at_step=7)
    story.recoverable(7)
    assert story.state_of_job() is JobState.STOPPING


def test_what_nobody_ordered_as_a_restart_is_not_taken_back_and_the_right_command_is_told() -> None:
    story = _begun()
    assert "no restart of j is planned" in story.problem()
    story.drain("n1")
    assert "everstep release n1" in story.problem()
    story.cancel()
    assert story.wish().kind == "drain"


def test_a_job_that_stops_for_it_already_is_too_late() -> None:
    story = _begun()
    story.restart(at_step=4)
    story.recoverable(4)
    assert story.state_of_job() is JobState.STOPPING
    assert "too late" in story.problem()
    told = [a.reason for a in story.cancel() if isinstance(a, actions.Announce)]
    assert "RestartCancelled" not in told
    story.stop_all()
    story.choose(4)
    assert story.job.generation.number == 2


def test_a_controller_that_dies_after_any_event_has_cancelled_all_the_same() -> None:
    story = _begun()
    story.drain("n1")
    story.restart(at_step=90)
    story.cancel()
    story.recoverable(story.wish().after_step or 0)
    story.stop_all()
    whole = encode(story.core.state)
    for died_after in range(len(story.told)):
        core = Core()
        for index, (event, at_ns) in enumerate(story.told):
            if index == died_after:
                core = Core(decode_state(encode(core.state)))
                core.due(at_ns)
            core.handle(event, at_ns)
        assert encode(core.state) == whole


def test_what_a_restart_waits_for_is_said_at_each_stage() -> None:
    story = _begun()
    story.restart(at_step=5)
    assert story.waits() == "for step 5, the newest is 3"
    story.train(4, 5)
    assert story.waits() == "until step 5 can be restored, the newest is 3"
    story.tell(events.AutomationPaused("j", "ops", "debugging"))
    assert "everstep resume j" in story.waits()
    story.tell(events.AutomationResumed("j", "ops"))
    story.recoverable(5)
    assert story.waits() == "its processes are ending"


def test_a_drain_that_has_nowhere_to_go_is_pending_too_with_what_it_waits_for() -> None:
    story = _begun(spare=False)
    assert forecast.pending(story.core.state, story.job) is None
    story.drain("n1")
    assert not story.is_planned()
    assert (story.wish().kind, story.wish().by) == ("drain", "operator")
    assert "stays on n1 until another node joins" in story.waits()
    assert story.undo() == "everstep release n1"


@pytest.mark.parametrize("spare", [True, False])
def test_what_a_window_wants_is_undone_by_ending_the_window(spare: bool) -> None:
    story = _begun(spare=spare)
    story.maintain("n1", after_s=300)
    assert story.wish().by == "maintenance"
    assert story.undo() == "everstep maintenance cancel m-1"


def test_the_incident_of_a_drain_names_the_node_that_was_left_and_a_restart_none() -> None:
    drained, restarted = _begun(), _begun()
    drained.drain("n1")
    drained.recoverable(drained.wish().after_step or 0)
    restarted.restart(at_step=4)
    restarted.recoverable(4)
    assert drained.incidents[-1].node == "n1"
    assert restarted.incidents[-1].node == ""
