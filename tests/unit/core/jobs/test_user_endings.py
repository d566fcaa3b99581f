"""A job that its user ends: no fault of anything, so its last time is planned."""

from everstep_controller.core import events
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
