"""What automation does not do: act while it is halted, count the dead, ask who has said it."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.windows import Span, Window, WindowState, holding
from unit.core.test_decisions import S, Story, kinds


def _hello(node: str, *, term: int = 0, boot: str = "1") -> events.NodeConnected:
    return events.NodeConnected(
        node=node,
        boot_id=boot,
        agent_version="0.1.0",
        outbox=f"{node}-box",
        highest_term=term,
        host=node,
        bulk_address=f"{node}:1",
        liveness_address=f"{node}:2",
    )


def _halt(story: Story) -> None:
    """Have agents of two nodes name a newer term."""
    story.tell(_hello("n1", term=7))
    story.tell(_hello("n2", term=7))
    assert story.core.state.halted


def test_two_agents_that_have_seen_a_newer_term_halt_the_controller() -> None:
    story = Story()
    story.tell(_hello("n0", term=story.core.state.term + 1))
    assert not story.core.state.halted, "one agent may be wrong"
    story.tell(_hello("n0", term=story.core.state.term + 1))
    assert not story.core.state.halted, "it is still one"
    story.tell(_hello("n1", term=story.core.state.term + 2))
    assert "n1 has seen term 3" in story.core.state.halted
    assert "and n0 more than it, too" in story.core.state.halted


def test_a_term_of_this_number_that_another_controller_began_halts_this_one() -> None:
    story = Story()
    term = story.core.state.term
    story.tell(_hello("n0", term=term))
    assert not story.core.state.refused_agents, "n0 has it from this controller"
    story.tell(_hello("n8", term=term))
    story.tell(_hello("n9", term=term))
    assert "n9 has seen term 1" in story.core.state.halted


def test_a_halted_controller_isolates_nothing_and_repeats_no_order() -> None:
    story = Story(nodes=4, settings=Settings(mode=Mode.ADVISE))
    story.tell(events.OperatorIsolated("n1", "ops", "swap the fan"))
    story.find("n0")
    story.tell(_hello("n9"))
    assert story.core.due(story.now_ns), "n9 has not answered its check"
    _halt(story)
    done = story.tell(events.SettingsApplied(Settings(mode=Mode.ENFORCE)))
    assert kinds(done) <= {actions.Announce, actions.SetTimer}
    assert story.core.due(story.now_ns) == []


def test_a_halted_controller_stops_no_job_for_settings_that_would_have_it_enforce() -> None:
    acting, halted = (Story(nodes=4, settings=Settings(mode=Mode.ADVISE)) for _ in range(2))
    for story in (acting, halted):
        story.run()
        story.find("n0")
    _halt(halted)
    enforce = events.SettingsApplied(Settings(mode=Mode.ENFORCE))
    assert actions.StopGeneration in kinds(acting.tell(enforce))
    assert kinds(halted.tell(enforce)) <= {actions.Announce, actions.SetTimer}


def test_a_halted_controller_stops_no_job_for_a_node_that_is_away() -> None:
    def lose_a_member(story: Story) -> set[type]:
        done = story.tell(events.TimerDue("silence/n0"), after_s=16)
        return set(kinds(done)) - {actions.Announce, actions.SetTimer}

    acting, halted = Story(nodes=4), Story(nodes=4)
    for story in (acting, halted):
        story.run()
        asked = story.tell(events.NodeDisconnected("n0"))
        for question in asked:
            if isinstance(question, actions.ConfirmSilence):
                story.tell(events.PeerJudged(question.node, "n0", question.id, False))
    _halt(halted)
    assert actions.StopGeneration in lose_a_member(acting)
    assert lose_a_member(halted) == set()


def test_lost_nodes_leave_the_budget_to_those_that_work() -> None:
    story = Story(nodes=8)
    for node in ("n0", "n1"):
        story.lose(node)
        assert story.state(node) is NodeState.LOST
    for node in ("n2", "n3", "n4"):
        story.find(node)
    assert (story.owners("n2"), story.owners("n3")) == (["automation"], ["automation"])
    assert story.owners("n4") == []


def _passed(story: Story, check: str) -> events.Reported[reports.CheckFinished]:
    return events.Reported(story.origin("x"), 0, reports.CheckFinished(check, True, "good"))


def test_only_the_newest_check_of_a_node_counts() -> None:
    story = Story(nodes=1)
    first, second = (
        next(a for a in story.tell(_hello("x", boot=boot)) if isinstance(a, actions.RunCheck))
        for boot in ("1", "2")
    )
    story.tell(_passed(story, first.id))
    assert story.state("x") is NodeState.VALIDATING
    story.tell(_passed(story, second.id))
    assert story.state("x") is NodeState.HEALTHY


def test_who_reports_a_silence_is_not_asked_whether_it_is_one() -> None:
    story = Story(nodes=5)
    asked = story.tell(events.PeerReported("n1", "n0", True))
    confirmers = {a.node for a in asked if isinstance(a, actions.ConfirmSilence)}
    assert len(confirmers) == 3
    assert confirmers <= {"n2", "n3", "n4"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_windows_the_one_that_begins_first_holds_a_node(order: tuple[int, int]) -> None:
    first = Window("m-1", Span(("n0",), 10 * S, 20 * S), "ann", "fans", 0, 0, WindowState.DRAINING)
    windows = (first, replace(first, id="m-2", span=Span(("n0",), 30 * S, 40 * S)))
    found = holding([windows[at] for at in order], "n0")
    assert found is not None
    assert found.id == "m-1"
