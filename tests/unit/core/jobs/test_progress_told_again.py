"""Progress that is told again, in part or whole, changes nothing: no record of it is remembered."""

import pytest

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import S, Story


def _row(first: int, count: int, generation: int = 1) -> events.JobProgressed:
    """Return a row of steps that each take a second."""
    return events.JobProgressed(
        job="j",
        generation=generation,
        first_step=first,
        end_ns=tuple((100 + first + offset) * S for offset in range(count)),
        stall_ns=(S // 10,) * count,
        recoverable_step=first,
    )


def _running() -> Story:
    story = Story(nodes=2)
    story.run()
    story.now_ns = 100 * S
    return story


@pytest.mark.parametrize("crash_after", range(1, 6))
def test_a_controller_that_dies_before_it_acknowledges_counts_no_step_twice(
    crash_after: int,
) -> None:
    rows = [_row(number, 2) for number in range(1, 11, 2)]
    whole, interrupted = _running(), _running()
    for row in rows:
        whole.tell(row)
    for row in rows[:crash_after]:
        interrupted.tell(row)
    # The journal has all of it, no agent knows: they tell the last rows once more, otherwise cut.
    interrupted.core = Core(decode_state(encode(interrupted.core.state)))
    told_again = [_row(2 * crash_after - 2, 3), _row(2 * crash_after, 1)]
    for row in [*(row for row in told_again if row.first_step > 0), *rows[crash_after:]]:
        interrupted.tell(row)
    one, other = whole.core.state.newest("j"), interrupted.core.state.newest("j")
    assert [step.step for step in other.ledger.steps] == [step.step for step in one.ledger.steps]
    assert other.ledger.step_count == one.ledger.step_count
    assert other.ledger.totals(200 * S) == one.ledger.totals(200 * S)
    assert other.lineage.last_step == one.lineage.last_step


def test_a_job_that_stands_still_is_not_taken_for_running_by_a_step_that_is_told_again() -> None:
    story = _running()
    story.tell(_row(1, 2))
    story.core.state.newest("j").state = JobState.STALLED
    story.tell(_row(1, 2))
    assert story.core.state.newest("j").state is JobState.STALLED
    story.tell(_row(3, 1))
    assert story.core.state.newest("j").state is JobState.RUNNING


def test_a_record_after_progress_is_taken_though_its_number_is_far_above_the_last_one() -> None:
    story = _running()
    for _ in range(50):
        story.origin("n0")
    story.tell(_row(1, 1))
    finished = reports.GenerationFinished(1)
    job = story.core.state.newest("j")
    for node in job.generation.members:
        story.tell(events.Reported(story.origin(node), 0, finished, "j"))
    assert job.state is JobState.ENDED


def test_members_are_counted_by_how_far_they_have_come() -> None:
    story = Story(nodes=2)
    story.join("n0")
    story.join("n1")
    story.choose(None)
    generation = story.core.state.newest("j").generation
    for node, phase in (
        ("n0", Phase.STARTED),
        ("n1", Phase.ATTACHED),
        ("n0", Phase.STARTED),
        ("n1", Phase.STARTED),
        ("n0", Phase.RESTORED),
        ("n1", Phase.RESTORED),
    ):
        told = reports.PhaseReached(1, phase)
        story.tell(events.Reported(story.origin(node), story.now_ns, told, "j"))
        counted = {one: generation.phases.count(one) for one in Phase}
        assert counted == {one: list(generation.phases.values()).count(one) for one in Phase}
    assert story.core.state.newest("j").state is JobState.WARMING
