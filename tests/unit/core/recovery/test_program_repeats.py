"""The program fails twice at the same step: its job ends, unless something else explains it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.reports import DataRange
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from unit.core.jobs.test_rollback import BadSteps
from unit.core.recovery.test_blame import WEAR
from unit.core.test_decisions import S

KINDS = {
    "exception": "ValueError: bad batch 17",
    "device_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "nan": "FloatingPointError: Loss became infinite or NaN",
}


def begun(*spares: str) -> BadSteps:
    story = BadSteps(nodes=4)
    story.run()
    for name in spares:
        story.join(name)
    story.go(1, 16)
    return story


@pytest.mark.parametrize(("kind", "exception"), KINDS.items())
def test_it_ends_after_two_and_its_node_is_left_alone(kind: str, exception: str) -> None:
    story = begun()
    for _ in range(2):
        story.again("n0", kind, exception=exception, step=16)
    assert (story.job.state, story.job.ending.succeeded) == (JobState.ENDED, False)
    assert story.job.recovery.restarts == 1
    assert exception in story.job.reason
    assert story.state("n0") is NodeState.HEALTHY


def lost_node(story: BadSteps) -> None:
    story.lose("n1")


def worn_node(story: BadSteps) -> None:
    story.find("n0", WEAR)


def isolated_node(story: BadSteps) -> None:
    story.tell(events.OperatorIsolated("n1", "ops", "look"))


@pytest.mark.parametrize("explains", [lost_node, worn_node, isolated_node])
def test_a_first_time_that_something_else_explains_does_not_count(
    explains: Callable[[BadSteps], None],
) -> None:
    story = begun("n2", "n3")
    story.die("n0", "nan", exception=KINDS["nan"], step=16)
    story.stop_all()
    explains(story)
    story.stop_all()
    story.choose(0)
    story.again("n0", "nan", exception=KINDS["nan"], step=16)
    assert story.job.state is not JobState.ENDED


def test_what_explained_the_first_time_does_so_after_its_repair_as_well() -> None:
    story = begun("n2")
    story.core.state.settings = replace(story.core.state.settings, mode=Mode.ADVISE)
    story.find("n0", WEAR)
    story.die("n0", "nan", exception=KINDS["nan"], step=16)
    story.stop_all()
    story.choose(0)
    cleared = reports.FindingCleared(WEAR.component, WEAR.condition, "it was reset")
    story.tell(events.Reported(story.origin("n0"), 0, cleared))
    story.again("n2", "nan", exception=KINDS["nan"], step=16)
    assert not story.job.ending.wanted
    story.again("n2", "nan", exception=KINDS["nan"], step=16)
    assert story.job.state is JobState.ENDED


def test_what_was_found_long_before_does_not_keep_the_program_from_being_told() -> None:
    story = begun()
    story.find("n0", WEAR)
    story.now_ns += 3600 * S
    for _ in range(2):
        story.again("n0", "exception", exception=KINDS["exception"], step=16)
    assert story.job.state is JobState.ENDED
    assert story.state("n0") is not NodeState.REPAIRING


OF_THE_AGENT = ("probe/own_cost", "agent/uplink", "outbox", "host/cpu", "host/clock", "job/k")


@pytest.mark.parametrize("component", OF_THE_AGENT)
def test_what_an_agent_finds_of_itself_or_of_the_load_makes_no_program_fail(component: str) -> None:
    story = begun()
    watched = replace(WEAR, component=component, suggested_action=SuggestedAction.WATCH)
    for _ in range(2):
        story.find("n0", watched)
        story.again("n0", "exception", exception=KINDS["exception"], step=16)
    assert story.job.state is JobState.ENDED
    assert story.state("n0") is not NodeState.VALIDATING


def test_a_node_that_was_replaced_and_checked_for_it_once_is_not_again() -> None:
    story = begun()
    flaps = replace(WEAR, component="link/mlx5_0", suggested_action=SuggestedAction.WATCH)
    for _ in range(8):
        story.find("n0", flaps)
        done = story.die("n0", "exception", exception=KINDS["exception"], step=16)
        done = [*done, *story.stop_all()]
        for check in (action for action in done if isinstance(action, actions.RunCheck)):
            told = reports.CheckFinished(check.id, True, "all is well")
            story.tell(events.Reported(story.origin(check.node), 0, told))
        if story.job.state is JobState.ENDED:
            break
        story.choose(16)
    assert story.job.state is JobState.ENDED
    assert story.job.generation.number == 3
    assert "the script or its data is at fault" in story.job.reason


def test_signals_from_outside_never_count_however_often_they_come() -> None:
    story = begun()
    goes_on = {JobState.STARTING, JobState.BACKING_OFF}
    for _ in range(20):
        story.again("n0", "killed", step=16)
        assert story.job.state in goes_on
        story.tell(events.TimerDue(f"backoff/{story.job.id}"), after_s=600)
        if story.job.state is JobState.REPLANNING:
            story.choose(0)
        assert story.job.state is JobState.STARTING


def test_memory_that_runs_out_twice_on_a_node_has_it_replaced_and_ends_no_job() -> None:
    story = begun("n2")
    story.again("n0", "host_memory", step=16)
    story.progress(17)
    story.again("n0", "host_memory", step=17)
    assert story.owners("n0") == ["automation"]
    assert story.job.generation.members == ["n2", "n1"]


def test_a_job_that_goes_back_and_is_bad_again_at_the_same_step_ends_after_two() -> None:
    story = begun()
    for _ in range(2):
        story.call_bad(17)
        story.stop_all()
        if story.job.state is JobState.REPLANNING:
            story.choose(16)
    assert story.job.state is JobState.ENDED
    assert story.job.recovery.restarts == 1
    assert "going back does not help" in story.job.reason


def test_a_job_that_leaves_out_other_data_each_time_goes_on() -> None:
    story = begun()
    for batch in (17, 18):
        story.call_bad(17, skip=DataRange(batch, batch))
        story.stop_all()
        story.choose(16)
    assert story.job.state is JobState.STARTING


def test_a_job_that_is_bad_at_a_later_step_goes_on() -> None:
    story = begun()
    for bad in (17, 20, 23):
        story.call_bad(bad)
        story.stop_all()
        story.choose(bad - 1)
        story.go(bad, bad + 2)
    assert story.job.state is JobState.RUNNING
