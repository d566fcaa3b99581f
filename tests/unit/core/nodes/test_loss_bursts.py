"""Losses beyond a burst: doubtful for a bounded time, and left out of plans meanwhile."""

from dataclasses import replace

import pytest

from everstep_common.judging.findings import Mode
from everstep_common.reports import TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.recovery import planning
from unit.core.test_decisions import S, Story

SETTINGS = Settings(mode=Mode.ENFORCE, loss_burst_nodes=2, loss_burst_ratio=0.0)
HOLD_S = SETTINGS.loss_hold_ns / S


def _in_domains(story: Story, domains: dict[str, str]) -> None:
    for node, domain in domains.items():
        hello = events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=story.core.state.term,
            host=node,
            domain=domain,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
        )
        story.tell(hello)


def _answer_nothing(story: Story, asked: list[actions.Action]) -> None:
    for one in asked:
        if isinstance(one, actions.ConfirmSilence):
            nothing = events.PeerJudged(one.node, one.peer, one.id, udp=False, tcp=TcpAnswer.SILENT)
            story.tell(nothing, after_s=0)


def _silence(story: Story, *nodes: str) -> None:
    """Have nodes fall silent at once, with nobody who gets an answer of them."""
    for node in nodes:
        _answer_nothing(story, story.tell(events.NodeDisconnected(node), after_s=0))


def _pass(story: Story, seconds: float) -> None:
    """Let time pass, with the timers of silences."""
    until_ns = story.now_ns + int(seconds * S)
    while True:
        due = [
            (at_ns, name)
            for name, at_ns in story.core.state.timers.items()
            if name.startswith(("silence/", "confirm/")) and at_ns <= until_ns
        ]
        if not due:
            break
        at_ns, name = min(due)
        wait_s = max(0, at_ns - story.now_ns) / S
        _answer_nothing(story, story.tell(events.TimerDue(name), after_s=wait_s))
    story.now_ns = until_ns


def _lost(story: Story) -> list[str]:
    return [name for name, node in story.core.state.nodes.items() if node.state is NodeState.LOST]


def test_losses_beyond_the_burst_are_doubtful_and_lost_after_a_bounded_time() -> None:
    story = Story(nodes=12, settings=SETTINGS)
    silent = [f"n{number}" for number in range(6)]
    _silence(story, *silent)
    _pass(story, 10)
    assert len(_lost(story)) == 2
    held = [name for name in silent if name not in _lost(story)]
    assert all(story.core.state.nodes[name].doubtful for name in held)
    _pass(story, HOLD_S)
    assert _lost(story) == silent


def test_a_plan_leaves_out_who_is_doubtful() -> None:
    story = Story(nodes=12, settings=SETTINGS)
    story.run()
    for node in ("n2", "n3", "n4"):
        story.join(node)
    _silence(story, "n8", "n9")
    _pass(story, 10)
    _silence(story, "n0", "n2")
    _pass(story, 10)
    assert _lost(story) == ["n8", "n9"]
    job = story.core.state.newest("j")
    able = [node.name for node in planning.candidates(story.core.state, job)]
    assert able == ["n1", "n3", "n4"]
    story.exit_rank("n1")
    story.stop_all()
    assert job.state is JobState.REPLANNING
    assert sorted(job.generation.members) == ["n1", "n3"]


def test_a_domain_that_is_lost_whole_is_no_burst() -> None:
    story = Story(nodes=12, settings=SETTINGS)
    _in_domains(story, {f"n{number}": f"rack-{number // 6}" for number in range(12)})
    silent = [f"n{number}" for number in range(6)]
    _silence(story, *silent)
    _pass(story, 10)
    assert _lost(story) == silent


@pytest.mark.parametrize("burst", [2, 4])
def test_nodes_with_a_domain_each_are_losses_each(burst: int) -> None:
    story = Story(nodes=12, settings=replace(SETTINGS, loss_burst_nodes=burst))
    _in_domains(story, {f"n{number}": f"host-{number:02}" for number in range(12)})
    silent = [f"n{number}" for number in range(6)]
    _silence(story, *silent)
    _pass(story, 10)
    assert len(_lost(story)) == burst
    _pass(story, HOLD_S)
    assert _lost(story) == silent
