"""Incidents of the fleet: faults with one cause are one, and say what they are made of."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.fleet.incidents import fleet_incidents
from everstep_controller.core.model.incident import IncidentKind
from everstep_controller.core.model.job import JobState
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import XID, Story


def running() -> Story:
    """Return a job that runs on two nodes of three."""
    story = Story()
    story.run()
    return story


def test_a_fleet_in_which_nothing_happened_has_none() -> None:
    assert fleet_incidents(running().core.state) == []


def test_an_incident_is_made_of_the_faults_that_have_its_cause_in_the_order_they_came() -> None:
    story = running()
    story.exit_rank("n0")
    story.exit_rank("n1")
    story.find("n1", XID)
    (incident,) = fleet_incidents(story.core.state)
    assert (incident.kind, incident.subjects) == (IncidentKind.JOB, ["j"])
    told = [(part.cause, part.node) for part in incident.parts]
    assert told == [("process", "n0"), ("process", "n1"), ("finding", "n1")]
    assert incident.message == incident.parts[-1].message, "the finding explains the deaths"
    assert incident.onset_ns == min(part.at_ns for part in incident.parts)
    assert not incident.over_ns


def test_a_fault_that_is_told_again_is_one_part() -> None:
    story = running()
    story.exit_rank("n0")
    (incident,) = fleet_incidents(story.core.state)
    story.now_ns = incident.onset_ns  # so that the same is told
    story.exit_rank("n0")
    assert len(incident.parts) == 1


def test_only_the_first_faults_are_kept() -> None:
    story = running()
    for _ in range(40):
        story.exit_rank("n0")
    (incident,) = fleet_incidents(story.core.state)
    assert len(incident.parts) == 16
    assert incident.parts[0].at_ns == incident.onset_ns


def test_incidents_are_told_newest_first_and_are_the_same_after_a_restart() -> None:
    story = running()
    for step in (1, 2):
        story.exit_rank("n0")
        story.stop_all()
        story.choose(None)
        story.progress(step)
    found = fleet_incidents(story.core.state)
    assert [one.id for one in found] == ["j-2", "j-1"]
    assert all(one.over_ns for one in found)
    assert fleet_incidents(decode_state(encode(story.core.state))) == found


def test_they_are_of_the_fleet_by_their_ids_and_go_with_the_job_that_they_hit() -> None:
    story = running()
    story.exit_rank("n0")
    state = story.core.state
    assert list(state.incidents) == state.jobs["j"].recovery.incidents == ["j-1"]
    story.stop_all()
    story.choose(None)
    for node in ("n0", "n1"):
        finished = events.Reported(story.origin(node), 0, reports.GenerationFinished(2), "j")
        story.tell(finished)
    assert state.jobs["j"].state is JobState.ENDED
    assert list(state.incidents) == ["j-1"]
    story.tell(events.TimerDue("forget/j"), after_s=8 * 86_400)
    assert (state.jobs, state.incidents) == ({}, {})
