"""Nodes that are gone for good: an operator removes them, and nothing of them is left."""

import pytest

from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.actions import Announce
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.nodes.removal import removal_problem
from everstep_controller.journal.codec import encode
from unit.core.test_decisions import S, Story


def _remove(story: Story, name: str) -> list[str]:
    done = story.tell(events.NodeRemoved(name, "ann", "returned to the vendor"))
    return [one.reason for one in done if isinstance(one, Announce) and one.subject == name]


def _problem(story: Story, name: str) -> str:
    return removal_problem(story.core.state, story.core.state.nodes[name])


def test_of_a_lost_node_that_is_removed_nothing_is_left() -> None:
    story = Story(nodes=8)
    state = story.core.state
    story.tell(events.PeerReported("n7", "n1", silent=True))
    story.lose("n7")
    assert story.state("n7") is NodeState.LOST
    assert not _problem(story, "n7")
    assert _remove(story, "n7") == ["NodeRemoved"]
    assert "n7" not in state.nodes
    assert b'"n7"' not in encode(state)
    assert not [timer for timer in state.timers if timer.endswith("/n7")]
    assert state.index.expected.total == 7


def test_a_removed_node_that_was_to_fail_is_asked_for_nothing_more() -> None:
    story = Story(nodes=8)
    story.run()
    story.find(
        "n7",
        Finding(
            component="gpu/0000:3b:00.0",
            condition="GpuMetricsVanished",
            severity=Severity.DEGRADED,
            message="the GPU tells less than its peers",
            mode=Mode.ADVISE,
        ),
    )
    assert story.core.state.index.precursors == ["n7"]
    story.lose("n7")
    assert _remove(story, "n7") == ["NodeRemoved"]
    assert story.core.state.index.precursors == []
    story.connect("n7", boot="2")
    assert story.state("n7") is NodeState.HEALTHY


@pytest.mark.parametrize("boot", ["1", "2"])
def test_removed_nodes_that_connect_again_are_new_ones(boot: str) -> None:
    story = Story(nodes=8)
    for name in ("n6", "n7"):
        story.lose(name)
        _remove(story, name)
    for name in ("n6", "n7"):
        story.connect(name, boot=boot)
        assert story.state(name) is NodeState.HEALTHY
    assert story.core.state.index.expected.total == 8
    assert not story.core.state.refused_agents
    assert not story.core.state.halted


@pytest.mark.parametrize("disconnected", [False, True])
def test_a_node_that_is_not_lost_stays(disconnected: bool) -> None:
    story = Story(nodes=8)
    if disconnected:
        story.tell(events.NodeDisconnected("n7"))
    assert "stop its agent first" in _problem(story, "n7")
    assert _remove(story, "n7") == []
    assert "n7" in story.core.state.nodes


def test_a_node_whose_agent_is_gone_while_its_address_answers_is_removed() -> None:
    story = Story(nodes=8)
    for question in story.tell(events.NodeDisconnected("n7")):
        if isinstance(question, actions.ConfirmSilence):
            story.tell(
                events.PeerJudged(
                    question.node, "n7", question.id, udp=False, tcp=TcpAnswer.ACCEPTED
                )
            )
    assert "try again 15 s later" in _problem(story, "n7")
    story.tell(events.TimerDue("silence/n7"), after_s=20)
    assert story.core.state.nodes["n7"].doubtful
    assert _remove(story, "n7") == ["NodeRemoved"]


def test_a_lost_member_whose_job_has_no_plan_without_it_stays() -> None:
    story = Story(nodes=4)
    story.run()
    story.join("n2")
    story.lose("n1")
    assert "is a member of j" in _problem(story, "n1")
    assert _remove(story, "n1") == []
    story.stop_all()
    story.choose(None)
    job = story.core.state.newest("j")
    assert job.generation.members == ["n0", "n2"]
    assert _remove(story, "n1") == ["NodeRemoved"]
    assert "n1" not in job.lineage.holders
    assert job.state is not JobState.ENDED


def test_a_node_in_maintenance_stays_until_that_is_over() -> None:
    story = Story(nodes=8)
    window = events.MaintenanceOrdered(
        nodes=("n7",), begin_ns=story.now_ns, end_ns=story.now_ns + 3600 * S, operator="ann"
    )
    story.tell(window)
    story.tell(events.NodeDisconnected("n7"))
    assert story.state("n7") is NodeState.MAINTENANCE
    assert "everstep maintenance cancel" in _problem(story, "n7")
    assert _remove(story, "n7") == []
