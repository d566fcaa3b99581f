"""Queue and account of a job: told with each of its hours, and no part of what it is."""

from everstep_controller.core import events
from everstep_controller.runtime.derived_history import job_hours
from unit.core.test_decisions import Story, launcher_joined


class Queued(Story):
    """A job whose launchers say in which queue they are."""

    def join_in(self, node: str, queue: str) -> None:
        told = launcher_joined(queue=queue, account="nlp")
        self.tell(events.Reported(self.origin(node), 0, told, "j"))


def test_a_job_is_of_the_queue_of_its_first_launcher_and_one_of_another_queue_joins_it() -> None:
    story = Queued()
    story.join_in("n0", "big")
    story.join_in("n1", "small")
    (job,) = story.core.state.jobs.values()
    assert set(job.launchers) == {"n0", "n1"}
    ((_, hour),) = job_hours(story.core.state, job, story.now_ns)
    assert (hour.queue, hour.account, hour.name) == ("big", "nlp", "j")
