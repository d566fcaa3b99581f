"""An agent whose stream ends again and again is a finding, gets no new ranks, and no time anew."""

import pytest

from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.nodes.stream_flaps import ENDS, STREAM_FLAPPING
from everstep_controller.core.recovery.planning import candidates
from unit.core.recovery.test_deadlines import ANSWER_S, Agents
from unit.core.test_decisions import Story


def _reconnect(story: Story, node: str, times: int, every_s: float = 20.0) -> None:
    """Have a node's stream end and open again; each of these silences is too short to be one."""
    for _ in range(times):
        story.tell(events.NodeDisconnected(node), after_s=every_s - 1)
        story.now_ns += 800_000_000
        story.connect(node, jobs=_seen(story, node))


def _seen(story: Story, node: str) -> tuple[JobOnNode, ...]:
    """Return what an agent knows of the job when it connects: all that it did before."""
    job = story.core.state.job("j")
    if job is None or node not in job.launchers:
        return ()
    number = job.generation.number if node in job.generation.members else 0
    return (JobOnNode("j", number, True),)


def _flaps(story: Story, node: str) -> bool:
    found = story.core.state.nodes[node].findings.values()
    return STREAM_FLAPPING.name in [held.finding.condition for held in found]


def _names(story: Story) -> list[str]:
    return [node.name for node in candidates(story.core.state, story.core.state.newest("j"))]


def _stay_open(story: Story, node: str, seconds: float) -> None:
    story.now_ns += int(seconds * 1e9)
    story.tell(events.TimerDue(f"stream/{node}"), after_s=0)


def test_an_agent_that_reconnects_every_20_s_is_a_finding_once() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS - 1)
    assert not _flaps(story, "n0")
    _reconnect(story, "n0", 1)
    assert _flaps(story, "n0")
    told: list[actions.Action] = []
    for _ in range(3 * 3600 // 20):
        told += story.tell(events.NodeDisconnected("n0"), after_s=19)
        story.connect("n0")
    said = [action.reason for action in told if isinstance(action, actions.Announce)]
    assert STREAM_FLAPPING.name not in said
    assert _flaps(story, "n0")


@pytest.mark.parametrize("every_s", [130, 3600])
def test_an_agent_that_is_restarted_now_and_then_is_none(every_s: float) -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", 4 * ENDS, every_s)
    assert not _flaps(story, "n0")


def test_a_stream_that_replaces_an_open_one_counts_as_an_end() -> None:
    story = Story(nodes=6)
    for _ in range(ENDS):
        story.connect("n0")
    assert _flaps(story, "n0")


def test_it_is_over_when_a_stream_was_open_for_ten_minutes() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS)
    _stay_open(story, "n0", 590)
    assert _flaps(story, "n0")
    _stay_open(story, "n0", 20)
    assert not _flaps(story, "n0")
    assert story.core.state.flapping == []
    assert not story.core.state.nodes["n0"].flaps_since_ns


def test_it_takes_no_new_ranks_and_keeps_those_that_it_has() -> None:
    story = Story(nodes=6)
    story.run()
    story.join("n2")
    _reconnect(story, "n2", ENDS)
    assert "n2" not in _names(story)
    story = Story(nodes=6)
    story.run()
    _reconnect(story, "n0", ENDS)
    assert "n0" in _names(story)
    assert story.core.state.newest("j").state is JobState.RUNNING


def test_a_spare_takes_the_place_of_one_that_flaps_when_the_job_stops_anyway() -> None:
    story = Agents()
    story.run()
    story.join("n2")
    _reconnect(story, "n0", ENDS)
    story.exit_rank("n1")
    assert story.members == ["n2", "n1"]


def test_where_many_streams_flap_the_cause_is_no_node() -> None:
    story = Story(nodes=10)
    for _ in range(ENDS):
        for index in range(10):
            story.tell(events.NodeDisconnected(f"n{index}"))
            story.connect(f"n{index}")
    assert sum(_flaps(story, f"n{index}") for index in range(10)) == 2


def test_a_node_that_is_lost_flaps_no_more() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS)
    story.lose("n0")
    assert not _flaps(story, "n0")
    assert story.core.state.flapping == []


def test_an_agent_that_reconnects_again_and_again_has_no_time_anew_for_its_orders() -> None:
    story = Agents()
    story.run()
    story.join("n2")
    _reconnect(story, "n1", ENDS)
    story.deaf = (actions.StopGeneration,)
    story.exit_rank("n0")
    assert story.job.state is JobState.STOPPING
    for _ in range(2 * ANSWER_S // 10):
        story.wait_s(9)
        # The new stream is there before the end of the old one is noticed: it is never doubtful.
        story.connect("n1", jobs=_seen(story, "n1"))
    assert "n1" in story.job.overdue
    assert story.members == ["n0", "n2"]
