"""What schedulers are asked, and not asked, as claims, others and failures come and go."""

import json
from dataclasses import replace
from typing import Any

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import PLANNED_WORK
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.model.isolation import Hold, IsolationResult, SeenHold
from everstep_controller.core.model.node import AUTOMATION, OPERATOR, SCHEDULER, NodeState
from everstep_controller.core.nodes.claims import why_ineligible
from everstep_controller.core.nodes.isolation import FAILURES_MAX
from everstep_controller.core.nodes.isolation_view import driver_findings, isolation_sentences
from everstep_controller.journal.codec import decode_state, encode
from unit.core.nodes.scheduler_world import DRIVER, SchedulerStory
from unit.core.test_decisions import S


def announced(done: list[actions.Action]) -> list[actions.Announce]:
    return [action for action in done if isinstance(action, actions.Announce)]


def said(done: list[actions.Action]) -> list[str]:
    return [action.reason for action in announced(done)]


def test_a_claim_is_applied_and_its_end_as_well() -> None:
    story = SchedulerStory()
    story.find("n0")
    story.answer()
    assert story.scheduler.holds == {"n0": Hold("automation: Xid 79", ours=True)}
    assert [one.owners for one in story.scheduler.applied] == [("automation",)]
    story.operator("n0", "release")
    check = actions.RunCheck(id=f"n0/check/{story.node().health.checks}", node="n0", reason="")
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.CheckFinished(check.id, True, "good"))
    )
    story.answer()
    assert story.held() == {}
    assert story.record.nodes == {}


def test_a_start_with_2000_nodes_and_no_claims_changes_nothing_at_the_scheduler() -> None:
    story = SchedulerStory(nodes=2000)
    story.readings = 0
    story.restart()
    assert [type(call) for call in story.calls] == [actions.ReadIsolation]
    story.answer()
    assert story.scheduler.applied == []
    assert story.readings == 1


def test_what_is_so_already_is_not_asked_for_again_after_a_restart() -> None:
    story = SchedulerStory()
    story.find("n0")
    story.operator("n1", "isolate")
    story.answer()
    asked = len(story.scheduler.applied)
    story.restart()
    story.answer()
    assert len(story.scheduler.applied) == asked
    assert story.held() == {"n0": True, "n1": True}


def test_nothing_is_applied_before_the_scheduler_was_read() -> None:
    story = SchedulerStory()
    story.restart()
    story.find("n0")
    assert [type(call) for call in story.calls] == [actions.ReadIsolation]
    story.answer()
    assert story.held() == {"n0": True}


def test_one_that_was_killed_between_the_call_and_its_answer_finds_it_done() -> None:
    story = SchedulerStory()
    story.find("n0")
    (call,) = story.calls
    assert isinstance(call, actions.ApplyIsolation)
    story.scheduler.apply(call.wanted[0])
    story.restart()
    story.answer()
    assert len(story.scheduler.applied) == 1
    assert story.record.nodes["n0"].applied == "automation: Xid 79"


def test_what_was_withheld_for_a_claim_that_the_journal_has_lost_is_freed() -> None:
    story = SchedulerStory()
    story.scheduler.holds["n1"] = Hold("automation: Xid 79", ours=True)
    story.look()
    story.answer()
    assert story.held() == {}


def test_a_node_that_everstep_does_not_know_is_left_as_it_is() -> None:
    story = SchedulerStory()
    story.scheduler.holds["other"] = Hold("automation: Xid 79", ours=True)
    story.look()
    story.answer()
    assert story.held() == {"other": True}
    story.connect("other")
    story.answer()
    assert story.held() == {}


def test_each_further_claim_changes_the_sentence_and_the_last_one_frees() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.answer()
    story.find("n0")
    story.answer()
    assert story.scheduler.holds["n0"].reason == "operator: ops: drill; automation: Xid 79"
    story.operator("n0", "release")
    story.answer()
    assert story.scheduler.holds["n0"].reason == "automation: Xid 79"


# --- nodes that the scheduler does not have ------------------------------------------------------


def test_a_node_that_the_scheduler_does_not_have_is_no_failure_and_shows_so() -> None:
    story = SchedulerStory()
    story.scheduler.unmanaged = {"n0"}
    story.operator("n0", "isolate")
    story.answer()
    assert story.scheduler.refused == ["n0"]
    assert (story.record.failures, story.core.state.timers.get(f"isolation/{DRIVER}")) == (0, None)
    assert [*driver_findings(story.core.state)] == []
    (sentence,) = isolation_sentences(story.core.state, "n0")
    assert sentence == "driver slurm does not manage it: its scheduler has no such node"
    assert not story.node().usable
    story.look()
    story.run_retries(300)
    assert story.scheduler.refused == ["n0"], "it is not asked again for the same claims"
    story.operator("n0", "release")
    story.answer()
    assert story.record.nodes == {}
    assert [*isolation_sentences(story.core.state, "n0")] == []


def test_a_node_that_its_scheduler_gets_later_is_asked_for_at_the_next_claim_or_start() -> None:
    story = SchedulerStory()
    story.scheduler.unmanaged = {"n0", "n1"}
    story.operator("n0", "isolate")
    story.operator("n1", "isolate")
    story.answer()
    story.scheduler.unmanaged = set()
    story.find("n0")
    story.answer()
    assert story.held() == {"n0": True}
    story.restart()
    story.answer()
    assert story.held() == {"n0": True, "n1": True}


# --- others --------------------------------------------------------------------------------------


def test_a_node_that_others_drained_takes_no_ranks_and_is_never_freed() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.look()
    story.answer()
    assert story.owners("n0") == [SCHEDULER]
    assert not story.node().usable
    assert "its scheduler keeps it out" in why_ineligible(story.core.state, story.node())
    story.operator("n0", "isolate")
    story.operator("n0", "release")
    story.answer()
    assert story.owners("n0") == [SCHEDULER]
    assert story.scheduler.applied == []
    assert story.held() == {"n0": False}


def test_the_claim_of_a_scheduler_goes_when_its_hold_is_gone() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.look()
    story.scheduler.resume("n0")
    story.look()
    story.answer()
    assert story.owners("n0") == []
    assert story.node().usable
    assert story.record.nodes == {}


def test_a_claim_of_a_scheduler_is_no_claim_that_is_applied_there() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.look()
    assert story.calls == []
    story.restart()
    story.answer()
    assert story.scheduler.applied == []


def test_others_who_drain_a_job_have_it_leave_at_a_step_boundary() -> None:
    story = SchedulerStory(nodes=3)
    story.run()
    story.join("n2")
    story.scheduler.drain("n0")
    story.look()
    job = story.core.state.newest("j")
    assert job.planned is not None
    assert job.planned.by == "scheduler"
    incident = open_incident(story.core.state, job)
    assert incident is not None
    assert incident.cause in PLANNED_WORK


def test_a_node_that_connects_for_the_first_time_is_claimed_by_a_hold_that_was_there() -> None:
    story = SchedulerStory(nodes=1)
    story.scheduler.drain("late")
    story.look()
    story.connect("late")
    assert story.owners("late") == [SCHEDULER]


def test_our_claim_is_applied_when_others_have_freed_the_node() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.look()
    story.find("n0")
    story.answer()
    assert story.held() == {"n0": False}
    story.scheduler.resume("n0")
    story.look()
    story.answer()
    assert story.owners("n0") == [AUTOMATION]
    assert story.held() == {"n0": True}


def test_others_who_drain_what_was_already_withheld_keep_it_when_our_claim_ends() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.answer()
    story.scheduler.drain("n0")
    story.look()
    story.operator("n0", "release")
    story.answer()
    assert story.held() == {"n0": False}
    assert story.owners("n0") == [SCHEDULER]


def test_a_hold_that_others_made_since_the_last_reading_is_found_by_the_answer() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.operator("n0", "isolate")
    story.answer()
    assert story.owners("n0") == [OPERATOR, SCHEDULER]
    assert story.held() == {"n0": False}


def test_a_node_that_others_free_in_spite_of_a_claim_is_not_fought_over() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.answer()
    story.scheduler.resume("n0")
    story.look()
    told = list(isolation_sentences(story.core.state, "n0"))
    assert len(told) == 1
    assert "everstep release n0" in told[0]
    for _ in range(3):
        story.look()
        story.restart()
        story.answer()
    assert story.held() == {}
    assert story.owners("n0") == [OPERATOR]
    assert not story.node().usable


def test_a_new_claim_is_applied_again_to_a_node_that_others_freed() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.answer()
    story.scheduler.resume("n0")
    story.look()
    story.find("n0")
    story.answer()
    assert story.held() == {"n0": True}
    assert list(isolation_sentences(story.core.state, "n0")) == []


def test_it_is_told_once_that_somebody_freed_a_claimed_node() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.answer()
    story.scheduler.resume("n0")
    seen = SeenHold("n0", None)
    report = events.DriverReported(driver=DRIVER, read=True, seen=(seen,))
    assert said(story.tell(report)) == ["IsolationOverridden"]
    assert said(story.tell(report)) == []


# --- failures ------------------------------------------------------------------------------------


def test_what_fails_is_tried_again_until_it_is_done() -> None:
    story = SchedulerStory()
    story.scheduler.broken = "slurmctld is away"
    story.find("n0")
    story.answer()
    assert "slurmctld is away" in next(isolation_sentences(story.core.state, "n0"))
    story.run_retries(600)
    assert story.held() == {}
    story.scheduler.broken = ""
    story.run_retries(61)
    assert story.held() == {"n0": True}
    assert list(isolation_sentences(story.core.state, "n0")) == []
    assert f"isolation/{DRIVER}" not in story.core.state.timers


def test_retries_become_ever_more_seldom_but_not_more_than_once_a_minute() -> None:
    story = SchedulerStory()
    story.scheduler.broken = "away"
    before, story.readings = story.now_ns, 0
    story.look()
    story.run_retries(3600)
    assert story.now_ns - before >= 3600 * S
    assert 58 <= story.readings <= 70


def test_a_driver_that_fails_again_and_again_is_a_finding_until_it_succeeds() -> None:
    story = SchedulerStory()
    story.scheduler.broken = "away"
    story.find("n0")
    story.answer()
    for _ in range(FAILURES_MAX - 1):
        assert list(driver_findings(story.core.state)) == []
        story.tell(events.TimerDue(f"isolation/{DRIVER}"), after_s=70)
        story.answer()
    (found,) = driver_findings(story.core.state)
    assert found.finding.condition == "IsolationDriverFailed"
    assert "away" in found.finding.message
    story.scheduler.broken = ""
    story.run_retries(120)
    assert list(driver_findings(story.core.state)) == []


def test_a_node_that_fails_does_not_keep_others_waiting() -> None:
    story = SchedulerStory()
    story.scheduler.broken = "away"
    story.find("n0")
    story.answer()
    story.scheduler.broken = ""
    story.operator("n1", "isolate")
    story.answer()
    assert story.held() == {"n1": True}
    story.run_retries(60)
    assert story.held() == {"n0": True, "n1": True}


def test_what_failed_and_was_done_all_the_same_is_not_asked_for_again() -> None:
    story = SchedulerStory()
    story.scheduler.broken = "no answer within 30 s"
    story.find("n0")
    story.answer()
    story.scheduler.broken = ""
    story.scheduler.holds["n0"] = Hold("automation: Xid 79", ours=True)
    story.run_retries(60)
    assert story.scheduler.applied == []
    assert list(isolation_sentences(story.core.state, "n0")) == []


def test_a_claim_that_ends_while_its_call_is_under_way_is_undone_after_it() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.operator("n0", "release")
    assert [type(call) for call in story.calls] == [actions.ApplyIsolation] * 2
    story.answer()
    assert story.held() == {}
    assert story.record.nodes == {}


@pytest.mark.parametrize("withheld", [True, False])
def test_an_answer_that_contradicts_itself_is_a_failure(withheld: bool) -> None:
    story = SchedulerStory()
    if not withheld:
        story.operator("n0", "isolate")
        story.answer()
    story.operator("n0", "isolate" if withheld else "release")
    (call,) = story.calls
    assert isinstance(call, actions.ApplyIsolation)
    hold = None if withheld else Hold("operator: ops: drill", ours=True)
    result = IsolationResult(call.wanted[0], hold)
    story.calls.clear()
    story.tell(events.DriverReported(driver=DRIVER, results=(result,)))
    assert "it says that it has" in story.record.nodes["n0"].failure


# --- configuration -------------------------------------------------------------------------------


def test_a_driver_that_is_not_configured_any_more_keeps_no_claim() -> None:
    story = SchedulerStory()
    story.scheduler.drain("n0")
    story.look()
    story.tell(events.SettingsApplied(story.core.state.settings))
    assert story.owners("n0") == []
    assert story.core.state.drivers == {}
    story.tell(events.DriverReported(driver=DRIVER, read=True))
    assert story.core.state.drivers == {}


# --- what else a driver is told of a hold --------------------------------------------------------


def test_a_hold_names_the_condition_for_which_automation_claimed_the_node() -> None:
    story = SchedulerStory()
    story.operator("n0", "isolate")
    story.find("n0")
    story.answer()
    assert [one.condition for one in story.scheduler.applied] == ["", "XidFatal"]
    assert not any(one.dead for one in story.scheduler.applied)


def test_a_node_that_is_lost_is_withheld_as_dead_until_it_is_back() -> None:
    story = SchedulerStory(nodes=5)
    story.lose("n0")
    story.answer()
    assert [(one.dead, one.condition) for one in story.scheduler.applied] == [(True, "")]
    story.connect("n0")
    story.answer()
    asked = [(one.withheld, one.dead) for one in story.scheduler.applied]
    assert asked == [(True, True), (True, False), (False, False)]


def test_holds_that_a_version_without_conditions_made_are_not_asked_for_again() -> None:
    story = SchedulerStory(nodes=5)
    story.find("n0")
    story.lose("n1")
    story.answer()
    asked = len(story.scheduler.applied)
    older = json.loads(encode(story.core.state))
    for node in older["nodes"].values():
        for claim in node["isolation"]["claims"]:
            del claim["condition"]
    for known in older["drivers"][DRIVER]["nodes"].values():
        del known["answered"]
    story.core = Core(decode_state(json.dumps(older).encode()))
    story.tell(events.ControllerStarted("0.2.0"))
    story.answer()
    assert (len(story.scheduler.applied), story.held()) == (asked, {"n0": True, "n1": True})


def test_a_driver_that_is_taken_out_tells_what_it_leaves_withheld() -> None:
    story = SchedulerStory()
    story.operator("n1", "isolate")
    story.scheduler.drain("n0")
    story.answer()
    story.look()
    removed = events.SettingsApplied(story.core.state.settings)
    (told,) = [one for one in announced(story.tell(removed)) if one.reason == "DriverRemoved"]
    assert told.message == (
        f"driver {DRIVER} is not configured any more, and what it has withheld stays so at its "
        "scheduler: n1; free them there, or configure it again and release them first"
    )
    assert "DriverRemoved" not in said(story.tell(removed))


@pytest.mark.parametrize(
    "lowered", [{"mode": Mode.OBSERVE}, {"mode": Mode.ADVISE}, {"observe": ("XidFatal",)}]
)
def test_a_mode_that_is_lowered_gives_nothing_back(lowered: dict[str, Any]) -> None:
    story = SchedulerStory()
    story.find("n0")
    story.answer()
    settings = replace(story.core.state.settings, **lowered)
    story.tell(events.SettingsApplied(settings, isolation_drivers=(DRIVER,)))
    story.answer()
    assert story.node().state is NodeState.REPAIRING
    assert story.held() == {"n0": True}
    story.operator("n0", "release")
    assert story.node().state is NodeState.VALIDATING
