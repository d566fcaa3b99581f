"""The branch of a job that runs for months: bounded, and what can be restored stays on it."""

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.journal.codec import encode
from unit.core.test_decisions import S, Story

_LAYOUTS = tuple(f"{part:032x}" for part in range(64))


class Months(Story):
    """A job that makes snapshots, loses a rank every hour, and goes on from the last step."""

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def hour(self, number: int) -> None:
        self.now_ns += 3600 * S
        self.exit_rank("n0")
        self.stop_all()
        origin = self.job.lineage.branch[-1].generation
        event = events.RecoveryStepChosen(
            job="j",
            generation=self.job.generation.number,
            step=self.job.lineage.last_step,
            step_generation=origin,
        )
        self.tell(event)
        for step in (number, number + 1):
            self.now_ns += 10 * S
            self.progress(step)
        learned = events.LayoutLearned("j", self.job.generation.number, _LAYOUTS)
        self.tell(learned)

    def size(self) -> int:
        return len(encode(self.core.state))


def test_of_old_generations_the_branch_keeps_the_steps_and_not_the_names_of_all_parts() -> None:
    story = Months()
    story.run()
    for number in range(20):
        story.hour(10 * (number + 1))
    branch = story.job.lineage.branch
    assert [bool(point.layouts) for point in branch] == [False] * 13 + [True] * 8
    assert [point.generation for point in branch] == list(range(1, 22))
    for point in branch[1:-1]:
        assert point.through_step is not None
        assert point.has(point.generation, point.through_step)


@pytest.mark.long
def test_a_month_of_hourly_faults_ends_with_the_memory_that_its_second_week_had() -> None:
    story = Months()
    story.run()
    sizes = []
    for number in range(24 * 30):
        story.hour(10 * (number + 1))
        assert story.job.state is JobState.RUNNING
        if number in (24 * 14, 24 * 30 - 1):
            sizes.append(story.size())
    second_week, end = sizes
    # The points of the branch go on to 1,024, of some sixty bytes each.
    assert end <= 1.05 * second_week + 24 * 16 * 100
