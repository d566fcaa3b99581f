"""Time of a job that nobody tells of: shown as a finding, until it is a small part of all."""

from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.jobs.unknown_time import TIME_UNKNOWN, findings
from unit.core.test_decisions import S, Story


def _away(story: Story, seconds: int) -> None:
    story.now_ns += seconds * S
    story.tell(events.ControllerStalled(seconds * S))
    story.tell(events.ControllerStarted("1"))


def _started() -> Story:
    story = Story()
    story.run()
    for step in range(1, 20):
        story.now_ns += S
        story.progress(step)
    return story


def test_a_job_whose_fault_is_all_that_is_told_after_an_absence_has_unknown_time() -> None:
    story = _started()
    _away(story, 600)
    story.exit_rank("n0")
    job = story.core.state.newest("j")
    assert job.ledger.totals(story.now_ns)[Category.UNKNOWN] >= 590 * S
    (told,) = findings(story.core.state)
    assert told.finding.condition == TIME_UNKNOWN.name
    assert "% of the time of j is unknown" in told.finding.message
    assert sum(job.ledger.totals(story.now_ns).values()) == job.ledger.wall_ns(story.now_ns)


def test_a_job_whose_steps_are_told_later_has_none() -> None:
    story = _started()
    _away(story, 600)
    story.progress(20)
    story.exit_rank("n0")
    assert not list(findings(story.core.state))
