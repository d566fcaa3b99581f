"""The branch of a job that runs for months: bounded, and what can be restored stays on it."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Self

import pytest

from everstep_controller.core import events
from everstep_controller.core.accounting.committed_steps import STEPS_KEPT
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


class _Instructions:
    """Counter of what the interpreter does: unlike the time of it, the same at every run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> Self:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self


def _instructions(work: Callable[[], None]) -> int:
    """Return how many instructions the interpreter takes for some work."""
    counter, before = _Instructions(), sys.gettrace()

    sys.settrace(counter)
    try:
        work()
    finally:
        sys.settrace(before)
    return counter.count


def _hours(story: Months, first: int, last: int) -> tuple[int, int]:
    """Let hours go by; return what the last one cost, and how large the state is after it."""
    for number in range(first, last):
        story.hour(10 * (number + 1))
        assert story.job.state is JobState.RUNNING
    cost = _instructions(lambda: story.hour(10 * (last + 1)))
    return cost, story.size()


def _old_job() -> Months:
    """Return a job that has made more steps than its ledger keeps."""
    story = Months()
    story.run()
    end_ns = tuple(story.now_ns + number * S for number in range(STEPS_KEPT + 100))
    story.now_ns = end_ns[-1]
    row = events.JobProgressed(
        job="j", generation=1, first_step=1, end_ns=end_ns, stall_ns=(0,) * len(end_ns)
    )
    story.tell(row)
    return story


def test_a_day_of_hourly_faults_ends_with_the_cost_and_memory_that_it_began_with() -> None:
    story = _old_job()
    # Of incidents 256 are kept.
    cost, size = _hours(story, 500, 760)
    last_cost, last_size = _hours(story, 761, 761 + 24)
    # The points of the branch go on to 1,024.
    assert last_cost <= cost + 25 * 100
    assert last_size <= size + 25 * 120


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_month_of_hourly_faults_ends_with_the_cost_and_memory_that_it_began_with() -> None:
    story = _old_job()
    cost, size = _hours(story, 500, 500 + 1030)
    last_cost, last_size = _hours(story, 1531, 1531 + 24 * 30)
    assert last_cost <= 1.01 * cost
    # Steps and times have a digit more; and of the steps that the ledger keeps, more are of these
    # months, with more digits than those before them, and with an excess after each restart.
    assert last_size <= 1.02 * size + 6 * STEPS_KEPT
