"""The orders with which a generation starts."""

from dataclasses import replace

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from unit.core.recovery.test_lost_jobs import WAITS, Old
from unit.core.test_decisions import Story


def test_spares_are_told_to_wait_in_the_order_in_which_they_came() -> None:
    # A replay in another process has to decide the same, and compares what comes in order.
    spares = [f"n{index}" for index in range(9, 1, -1)]
    story = Story(nodes=10)
    for node in ("n0", "n1", *spares):
        story.join(node)
    done = story.choose(None)
    held = [action.node for action in done if isinstance(action, actions.HoldLauncher)]
    assert held == spares


def test_a_job_that_goes_on_from_storage_at_its_first_start_names_no_plan() -> None:
    story = Story(nodes=2)
    story.join("n0")
    story.join("n1")
    told = {a.reason for a in story.choose(43) if isinstance(a, actions.StartGeneration)}
    assert all("generation 1 continues after step 43" in reason for reason in told), told
    assert told


def test_a_plan_is_told_in_words() -> None:
    story = Story(nodes=2)
    story.run()
    story.exit_rank("n1")
    story.stop_all()
    told = {a.reason for a in story.choose(43) if isinstance(a, actions.StartGeneration)}
    assert told
    assert all("generation 2 (in place) continues after step 43" in reason for reason in told), told


def test_a_launcher_that_leaves_before_the_others_are_back_takes_its_plan_with_it() -> None:
    story = Old()
    for node in ("n0", "n1", "n2"):
        story.begin(node)
    story.choose(None)
    story.tell(events.AutomationPaused("j", "me", "wait"))
    story.exit_rank("n0")
    story.stopped("n0", 1)
    story.tell(events.ControllerStarted("0.1.0"))
    story.tell(events.AutomationResumed("j", "me"))
    waits = replace(WAITS, job_id=story.job.id, lineage_id=story.job.id)
    story.connect("n1", jobs=(waits,))
    assert (story.job.state, story.job.generation.members) == (JobState.REPLANNING, ["n1"])
    gone = reports.LauncherLeft("its process is gone", by_user=False)
    story.tell(events.Reported(story.origin("n1"), story.now_ns, gone, "j"))
    story.choose(None)
    assert (story.job.state, story.job.generation.members) == (JobState.REPLANNING, ["n1"])
    story.connect("n2", jobs=(waits,))
    assert story.job.generation.members == ["n2"]
    story.choose(None)
    assert story.job.state is JobState.STARTING
