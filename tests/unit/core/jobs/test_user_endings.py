"""A job that its user ends: no fault of anything, so its last time is planned."""

from collections.abc import Sequence

from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from unit.core.jobs.test_job_endings import LongStory


def test_who_ends_a_job_on_purpose_has_planned_it() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.leave("n0")
    story.stop_all()
    (incident,) = story.incidents
    assert (incident.cause, incident.node) == ("user", "n0")
    assert not [name for name in story.job.ledger.totals(10**12) if name.startswith("inc.")]


def test_a_fault_that_was_there_before_is_not_planned_by_who_ends_the_job() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.tell(events.OperatorIsolated("n0", "ops", "fan"))
    before = story.incidents[-1].cause
    story.leave("n0")
    assert story.incidents[-1].cause == before


def _spares(done: Sequence[actions.Action]) -> dict[str, bool]:
    """Return who was told to wait, and whether as a spare."""
    return {one.node: one.spare for one in done if isinstance(one, actions.HoldLauncher)}


def test_a_spare_is_told_that_it_is_one_and_its_job_goes_on_without_it() -> None:
    story = LongStory()
    story.run()
    assert _spares(story.join("n2")) == {"n2": True}
    story.leave("n2")
    assert story.job.state is JobState.RUNNING


def test_a_launcher_that_was_a_member_is_told_when_it_is_a_spare() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.join("n2")
    story.tell(events.OperatorIsolated("n0", "ops", "fan"))
    story.stop_all()
    assert _spares(story.restore(2, 3)) == {"n0": True}
    assert "n0" not in story.job.generation.members
    story.leave("n0")
    assert story.job.state is not JobState.STOPPING
    assert not story.job.ending.wanted


def test_who_waits_for_its_job_to_form_or_to_go_on_is_no_spare() -> None:
    story = LongStory()
    assert _spares(story.join("n0")) == {"n0": False}
    story.run()
    story.train(1, 2, 3)
    story.tell(events.OperatorIsolated("n0", "ops", "fan"))
    assert _spares(story.stop_all()) == {"n0": False, "n1": False}
    assert story.job.state is JobState.WAITING_CAPACITY
    story.leave("n1")
    assert story.job.ending.wanted
