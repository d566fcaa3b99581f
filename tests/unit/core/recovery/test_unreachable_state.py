"""A job whose state nobody can give back: it waits with one plan, and says for what."""

from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.recovery.planning import ASKS_MAX
from unit.core.jobs.test_job_endings import LongStory

LOST = "no reachable copy of rank 0"


def _without_its_state(nodes: int = 3) -> LongStory:
    """A job of two nodes whose node n0 is lost, with all copies of rank 0."""
    story = LongStory(nodes)
    story.run()
    story.train(1, 2)
    story.join("n2")
    story.lose("n0")
    story.stop_all()
    story.choose(None, lost=LOST)
    return story


def _said(done: list[actions.Action]) -> list[str]:
    return [action.reason for action in done if isinstance(action, actions.Announce)]


def test_it_makes_no_generation_while_it_waits_and_says_nothing_twice() -> None:
    story = _without_its_state()
    generation, judged = story.job.generation.number, list(story.job.recovery.judgements)
    assert story.job.state is JobState.WAITING_STATE
    for _ in range(20):
        asked = story.tell(events.TimerDue(f"retry/{story.job.id}"), after_s=15)
        assert [a.generation for a in asked if isinstance(a, actions.ChooseRecoveryStep)] == [2]
        assert _said(asked + story.choose(None, lost=LOST)) == []
        assert story.job.state is JobState.WAITING_STATE
    assert (story.job.generation.number, story.job.recovery.judgements) == (generation, judged)


def test_it_keeps_its_cause_and_says_what_is_to_be_done() -> None:
    story = _without_its_state()
    story.tell(events.TimerDue(f"retry/{story.job.id}"), after_s=15)
    story.choose(None, lost=LOST)
    assert story.open_incident is not None
    assert (story.open_incident.cause, story.open_incident.node) == ("node", "n0")
    assert story.job.reason == (
        f"its state cannot be restored: {LOST}; it goes on when what n0 had can be reached: bring "
        "back the node, or to start from scratch, end it and start it again with --fresh"
    )


def test_it_says_when_no_node_that_is_away_could_help() -> None:
    story = _without_its_state()
    story.connect("n0")
    story.choose(None, lost=LOST)
    assert "no node that had some of it is away; to start from scratch, end it" in story.job.reason


def test_it_goes_on_with_the_generation_that_was_planned() -> None:
    story = _without_its_state()
    story.connect("n0")
    started = [a for a in story.restore(1, 2) if isinstance(a, actions.StartGeneration)]
    assert [(order.generation, order.node) for order in started] == [(2, "n2"), (2, "n1")]
    assert (story.job.state, story.job.recovery.restarts) == (JobState.STARTING, 1)
    assert story.job.generation.unreachable == ""


def test_an_answer_for_a_member_that_has_gone_since_is_not_taken() -> None:
    story = _without_its_state()
    story.tell(events.NodeDisconnected("n2"))
    assert not [a for a in story.restore(1, 2) if isinstance(a, actions.StartGeneration)]
    story.tell(events.TimerDue("silence/n2"), after_s=20)
    assert story.job.reason.startswith("1 node can take ranks, it needs 2; n0, n2 take none now")


def test_a_controller_that_starts_again_asks_again() -> None:
    story = _without_its_state()
    story.tell(events.TimerDue(f"retry/{story.job.id}"), after_s=15)
    story.tell(events.ControllerStarted("0.1.0"))
    due = story.core.due(story.now_ns)
    assert [a.generation for a in due if isinstance(a, actions.ChooseRecoveryStep)] == [2]


def test_after_it_went_on_a_new_fault_makes_a_new_generation() -> None:
    story = _without_its_state()
    story.connect("n0")
    story.restore(1, 2)
    story.train(3)
    story.crash()
    assert story.job.generation.number == 3


def _asks(done: list[actions.Action]) -> int:
    return sum(isinstance(action, actions.ChooseRecoveryStep) for action in done)


def test_two_nodes_that_are_doubted_alike_do_not_take_turns_at_every_answer() -> None:
    story = _without_its_state(4)
    story.join("n3")
    story.job.overdue.update({name: 1 for name in ("n2", "n3")})
    asked = 0
    for _ in range(50):
        done = story.tell(_answer(story), after_s=0)
        asked += _asks(done)
    assert asked <= 1
    assert story.job.state is JobState.WAITING_STATE


def test_a_plan_that_changes_without_end_asks_a_few_times_and_then_when_it_is_time() -> None:
    story = _without_its_state(4)
    story.join("n3")
    asked = 0
    for turn in range(100):
        out, back = ("n2", "n3") if turn % 2 else ("n3", "n2")
        asked += _asks(story.tell(events.OperatorReleased(back, "me", "well"), after_s=0))
        asked += _asks(story.tell(events.OperatorIsolated(out, "me", "bad"), after_s=0))
        asked += _asks(story.tell(_answer(story), after_s=0))
    assert 2 <= asked <= ASKS_MAX
    due = story.tell(events.TimerDue(f"retry/{story.job.id}"), after_s=15)
    assert _asks(due) == 1
    assert story.job.generation.members == ["n3", "n1"]


def test_a_plan_that_nobody_is_left_for_waits_for_nodes_however_often_it_asked() -> None:
    story = _without_its_state(4)
    story.join("n3")
    story.job.generation.asks = ASKS_MAX
    story.tell(events.OperatorIsolated("n1", "me", "bad"))
    story.tell(events.OperatorIsolated("n2", "me", "bad"))
    assert story.job.state is JobState.WAITING_CAPACITY


def _answer(story: LongStory) -> events.RecoveryStepChosen:
    number = story.job.generation.number
    return events.RecoveryStepChosen(job="j", generation=number, step=None, lost=LOST)
