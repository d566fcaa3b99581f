"""A large job that forms: its launchers are told who has joined, in messages like its nodes."""

from collections.abc import Sequence

import pytest

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.turn import TimerKind
from unit.core.test_decisions import S, Story, launcher_joined

_NODES = [f"n{number}" for number in range(200)]


def _join(story: Story, node: str, *, least: int, most: int) -> Sequence[actions.Action]:
    report = launcher_joined(nodes_min=least, nodes_max=most)
    return story.tell(events.Reported(story.origin(node), 0, report, "j"))


def _held(done: Sequence[actions.Action]) -> list[actions.HoldLauncher]:
    return [action for action in done if isinstance(action, actions.HoldLauncher)]


def _story() -> Story:
    story = Story(nodes=0)
    for node in _NODES:
        story.connect(node)
    return story


def test_the_messages_of_a_job_that_forms_grow_with_its_nodes() -> None:
    story = _story()
    held = [len(_held(_join(story, node, least=200, most=200))) for node in _NODES]
    assert story.core.state.newest("j").state is JobState.REPLANNING
    assert sum(held[:16]) <= 16 * 17
    assert sum(held[16:]) <= 4 * len(_NODES)


def test_launchers_hear_a_little_later_how_many_have_joined_when_no_more_come() -> None:
    story = _story()
    for node in _NODES[:150]:
        _join(story, node, least=200, most=200)
    job = story.core.state.newest("j")
    assert job.reason == "150 of 200 nodes have joined, it needs 200"
    timer = f"{TimerKind.RETRY}/{job.id}"
    story.now_ns += 6 * S
    told = _held(story.tell(events.TimerDue(timer)))
    assert {one.node for one in told} == set(_NODES[:150])
    assert {one.reason for one in told} == {job.reason}
    assert timer not in story.core.state.timers
    story.now_ns += 6 * S
    assert _held(story.tell(events.TimerDue(timer))) == []


def test_a_large_job_that_has_its_fewest_nodes_begins_after_the_last_call() -> None:
    story = _story()
    for node in _NODES[:120]:
        _join(story, node, least=100, most=200)
    job = story.core.state.newest("j")
    timer = f"{TimerKind.FORMING}/{job.id}"
    assert (job.state, timer in story.core.state.timers) == (JobState.FORMING, True)
    story.now_ns += 11 * S
    story.tell(events.TimerDue(timer))
    assert (job.state, len(job.generation.members)) == (JobState.REPLANNING, 120)


def test_a_launcher_that_leaves_a_large_job_is_told_to_the_others() -> None:
    story = _story()
    for node in _NODES[:64]:
        _join(story, node, least=200, most=200)
    left = reports.LauncherLeft(reason="SIGTERM", by_user=False)
    story.tell(events.Reported(story.origin("n3"), 0, left, "j"))
    job = story.core.state.newest("j")
    story.now_ns += 6 * S
    told = _held(story.tell(events.TimerDue(f"{TimerKind.RETRY}/{job.id}")))
    assert {one.reason for one in told} == {"63 of 200 nodes have joined, it needs 200"}
    assert len(told) == 63


@pytest.mark.parametrize(
    ("least", "most", "told"),
    [
        (1, 1, "waiting for the controller to start it"),
        (3, 3, "waiting for 3 nodes"),
        (2, 4, "waiting for 2 to 4 nodes"),
    ],
)
def test_the_first_launcher_is_told_what_its_new_job_waits_for(
    least: int, most: int, told: str
) -> None:
    first, *_ = _held(_join(_story(), "n0", least=least, most=most))
    assert first.reason == told
