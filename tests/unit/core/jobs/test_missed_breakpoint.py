"""A job that ends while its last step does not come to storage says so to who started it."""

import pytest

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.jobs import orders
from everstep_controller.core.model.snapshots import BranchPoint
from unit.core.jobs.test_job_endings import STORAGE, LongStory


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
    done = _closing().tell(events.FinalSaveEnded("j", 1, "step 2 is not there", missed))
    assert {one.endswith("; step 2 is not there") for one in _reasons(done)} == {missed}


def test_the_launcher_reads_that_storage_took_too_long() -> None:
    story = _closing()
    done = story.tell(events.TimerDue(f"final_save/{story.job.id}"), after_s=121)
    wanted = "; its last step was not in storage after 120 s"
    assert all(reason.endswith(wanted) for reason in _reasons(done))


def _ended_well(missed: bool) -> LongStory:
    story = LongStory(nodes=4)
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.tell(
            events.Reported(story.origin(node), story.now_ns, reports.GenerationFinished(1), "j")
        )
    story.tell(events.FinalSaveEnded("j", 1, "step 2 is not there", missed))
    assert story.ended()
    return story


def test_of_a_job_that_ended_well_what_storage_has_not_is_kept_for_the_next_one() -> None:
    story = _ended_well(missed=True)
    assert story.job.ending.succeeded
    assert "start the job again under its name" in story.job.reason
    story.join("n2")
    story.join("n3")
    due = story.core.due(story.now_ns)
    (asked,) = [one for one in due if isinstance(one, actions.ChooseRecoveryStep)]
    assert asked.branch == (BranchPoint(1, None, 2),)
    assert "ended without its last step in storage" in story.job.lineage.begun


def test_of_one_whose_end_is_in_storage_nothing_is_kept() -> None:
    story = _ended_well(missed=False)
    assert story.job.reason.endswith("all ranks ended well after step 2")
    story.join("n2")
    story.join("n3")
    assert story.job.lineage.begun == ""


@pytest.mark.parametrize("missed", [False, True])
def test_nodes_are_told_whether_its_memory_is_all_that_there_is(missed: bool) -> None:
    job = _ended_well(missed).job
    order = orders.end(job, "n0")
    assert (order.succeeded, order.unsaved) == (True, missed)
