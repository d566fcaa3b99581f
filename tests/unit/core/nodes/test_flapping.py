"""A finding that comes and goes costs a few changes a minute, and ends when it stays away."""

import pytest

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from unit.core.test_decisions import S, Story


def _clear(story: Story, node: str) -> list[actions.Action]:
    over = reports.FindingCleared("gpu/0", "XidFatal", "well")
    return story.tell(events.Reported(story.origin(node), 0, over), after_s=0.05)


def _flap(story: Story, node: str, times: int) -> list[actions.Action]:
    """Raise and clear a finding again and again, and answer all checks as fast as may be."""
    done: list[actions.Action] = []
    for _ in range(times):
        done += story.find(node)
        done += _clear(story, node)
        for order in [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]:
            passed = reports.CheckFinished(order.id, True, "good")
            done += story.tell(events.Reported(story.origin(node), 0, passed), after_s=0)
    return done


def _let_pass(story: Story, seconds: float) -> None:
    """Let time pass, with the timer of what is kept open."""
    until_ns = story.now_ns + int(seconds * S)
    while (at_ns := story.core.state.timers.get("flapping/n0", until_ns + 1)) <= until_ns:
        story.tell(events.TimerDue("flapping/n0"), after_s=(at_ns - story.now_ns) / S)
    story.now_ns = until_ns


def test_ten_times_a_second_is_a_few_changes() -> None:
    story = Story()
    done = _flap(story, "n0", 600)
    assert sum(isinstance(action, actions.RunCheck) for action in done) == 2
    assert sum(isinstance(action, actions.Announce) for action in done) < 30
    assert len(story.core.state.isolations_ns) == 3
    assert (story.state("n0"), story.owners("n0")) == (NodeState.REPAIRING, ["automation"])


def test_it_is_over_when_it_was_well_for_a_minute() -> None:
    story = Story()
    _flap(story, "n0", 20)
    _let_pass(story, 55)
    assert story.core.state.nodes["n0"].findings
    _let_pass(story, 6)
    assert story.core.state.nodes["n0"].findings == {}
    assert story.state("n0") is NodeState.VALIDATING


def test_it_stays_open_while_it_comes_again() -> None:
    story = Story()
    _flap(story, "n0", 20)
    for _ in range(20):
        _let_pass(story, 20)
        story.find("n0")
        _clear(story, "n0")
        assert story.core.state.nodes["n0"].findings
    assert story.state("n0") is NodeState.REPAIRING


@pytest.mark.parametrize("apart_s", [31, 60])
def test_what_comes_back_seldom_is_cleared_at_once(apart_s: int) -> None:
    story = Story()
    for _ in range(6):
        story.find("n0")
        _clear(story, "n0")
        assert story.core.state.nodes["n0"].findings == {}
        story.now_ns += apart_s * S


def test_a_finding_that_was_never_cleared_is_kept_open_by_nothing() -> None:
    story = Story()
    story.find("n0")
    story.find("n0")
    story.find("n0")
    _clear(story, "n0")
    assert story.core.state.nodes["n0"].findings == {}
