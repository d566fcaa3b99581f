"""A job that ends while its last step does not come to storage says so to who started it."""

import pytest

from everstep_controller.core import actions, events
from unit.core.test_job_endings import STORAGE, LongStory


def _closing() -> LongStory:
    story = LongStory()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    story.leave("n0")
    story.stop_all()
    return story


def _reasons(done: list[actions.Action]) -> set[str]:
    found = {action.reason for action in done if isinstance(action, actions.EndJob)}
    assert found
    return found


@pytest.mark.parametrize("missed", [False, True])
def test_the_launcher_reads_that_storage_has_not_what_the_job_ended_with(missed: bool) -> None:
    done = _closing().tell(events.BreakpointReached("j", 1, "step 2 is not there", missed))
    assert {one.endswith("; step 2 is not there") for one in _reasons(done)} == {missed}


def test_the_launcher_reads_that_storage_took_too_long() -> None:
    done = _closing().tell(events.TimerDue("breakpoint/j"), after_s=121)
    wanted = "; its last step was not in storage after 120 s"
    assert all(reason.endswith(wanted) for reason in _reasons(done))
