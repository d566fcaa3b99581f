"""A fault when no step is left to make: the incident ends with the job."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from unit.core.jobs.test_job_endings import LongStory


def test_an_incident_is_over_when_the_ranks_end_well_without_a_new_step() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.crash()
    story.restore(1, 3)
    (incident,) = story.incidents
    assert story.open_incident is incident
    for node in ("n0", "n1"):
        generation = story.job.generation.number
        story.tell(
            events.Reported(
                story.origin(node), story.now_ns, reports.GenerationFinished(generation), "j"
            )
        )
    assert story.job.state is JobState.ENDED
    assert incident.over_ns == story.now_ns
    assert story.open_incident is None
