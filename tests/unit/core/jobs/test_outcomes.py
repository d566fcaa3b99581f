"""How a job has ended, in a word: it succeeded, failed, was cancelled, or was replaced."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.job import Outcome
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_continuation import NextStory
from unit.core.recovery.test_blame import BAD_BATCH, Incidents


class _Failing(Incidents, NextStory):
    """A job whose script fails the same way twice."""

    def fail(self) -> None:
        self.run()
        self.progress(1)
        self.job.lineage.recoverable_step = 1
        self.again("n0", "exception", exception=BAD_BATCH, step=1)
        self.die("n0", "exception", exception=BAD_BATCH, step=1)
        self.stop_all()
        assert self.ended()


def test_a_job_that_runs_has_no_outcome_yet() -> None:
    story = NextStory()
    story.run()
    assert story.job.outcome is None


def test_a_job_whose_ranks_have_all_ended_well_has_succeeded() -> None:
    story = NextStory()
    story.run()
    for node in ("n0", "n1"):
        done = reports.GenerationFinished(1)
        story.tell(events.Reported(story.origin(node), story.now_ns, done, "j"))
    assert story.job.outcome is Outcome.SUCCEEDED


def test_a_job_that_its_user_ends_was_cancelled() -> None:
    story = NextStory()
    story.cancelled()
    assert story.job.outcome is Outcome.CANCELLED


def test_a_job_that_ends_for_what_its_script_does_has_failed_and_the_next_one_says_so() -> None:
    story = _Failing(nodes=4)
    story.fail()
    assert story.job.outcome is Outcome.FAILED
    assert decode_state(encode(story.core.state)).newest("j").outcome is Outcome.FAILED
    story.join("n2")
    assert "the job that failed" in story.job.lineage.begun


def test_a_job_that_was_started_in_another_way_when_nobody_was_left_of_it_was_replaced() -> None:
    story = NextStory(nodes=4)
    story.join("n0")
    before = story.job
    story.vanish("n0")
    story.join("n0", nodes=1)
    assert story.job is not before
    assert before.outcome is Outcome.REPLACED
