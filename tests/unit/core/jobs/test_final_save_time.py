"""Time in which a job that is over brings its last step to storage has a category of its own."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobState
from unit.core.jobs.test_incident_retention import Months
from unit.core.test_decisions import S


def _storing() -> Months:
    story = Months()
    story.run()
    story.job.spec = replace(story.job.spec, storage=Storage("/ckpt"))
    for step in range(1, 20):
        story.now_ns += 10 * S
        story.progress(step)
    return story


def _state(story: Months) -> JobState:
    return story.job.state


def _end_closing(story: Months) -> dict[Category, int]:
    assert _state(story) is JobState.CLOSING
    begun_ns = story.now_ns
    saved = events.FinalSaveEnded("j", story.job.generation.number, "it is there", False)
    story.tell(saved, after_s=30)
    assert _state(story) is JobState.ENDED
    assert story.now_ns - begun_ns == 30 * S
    told = story.job.ledger.totals(story.now_ns)
    assert sum(told.values()) == story.job.ledger.wall_ns(story.now_ns)
    assert Category.IN_FLIGHT not in told
    return told


def test_a_job_that_ended_well_waited_for_a_save() -> None:
    story = _storing()
    for node in story.job.generation.members:
        report = reports.GenerationFinished(story.job.generation.number)
        story.tell(events.Reported(story.origin(node), story.now_ns, report, "j"))
    told = _end_closing(story)
    assert told[Category.PERSIST] == 30 * S
    assert 0 < told[Category.GAP] < S
    assert Category.SAVE not in told


def test_a_job_that_failed_for_good_has_its_last_save_in_the_cost_of_that() -> None:
    story = _storing()
    story.job.spec = replace(story.job.spec, restarts_max=0)
    story.tell(events.StepRecoverable("j", story.job.generation.number, 18))
    story.exit_rank("n0")
    story.stop_all()
    told = _end_closing(story)
    assert told[Category.SAVE] == 30 * S
    (incident,) = story.incidents
    assert story.job.ledger.totals(story.now_ns, incident.id)[Category.SAVE] == 30 * S
    assert Category.PERSIST not in told
