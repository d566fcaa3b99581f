"""What enforcing would have done, by what was recorded while nothing was enforced."""

import random
import sys

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.model.judged import JUDGED_MAX, JudgedIsolation
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes.judged import judged_isolations
from everstep_controller.core.nodes.what_if import together, what_if
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import XID, S, Story

X = "XidFatal"
LINK = Finding(component="ib/0", condition="LinkDown", severity=Severity.FATAL, message="down")


def _over(story: Story, node: str, after_s: float = 1.0) -> None:
    cleared = reports.FindingCleared("gpu/0", X, "well")
    for action in story.tell(events.Reported(story.origin(node), 0, cleared), after_s=after_s):
        if isinstance(action, actions.RunCheck):
            passed = reports.CheckFinished(action.id, True, "good")
            story.tell(events.Reported(story.origin(node), 0, passed))


def _fleet(nodes: int, **settings: float) -> State:
    story = Story(nodes, Settings(mode=Mode.ADVISE, **settings))  # type: ignore[arg-type]
    return story.core.state


def judged(node: int, at_s: float, over_s: float = 0, condition: str = X) -> JudgedIsolation:
    return JudgedIsolation(f"n{node}", condition, int(at_s * S) + 1, int(over_s * S))


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ADVISE, Mode.ENFORCE])
def test_what_is_found_is_recorded_in_every_mode_and_what_is_over_as_well(mode: Mode) -> None:
    story = Story(5, Settings(mode=mode))
    story.find("n0", XID)
    story.find("n1", XID)
    _over(story, "n1", after_s=100)
    known = {one.node: one for one in judged_isolations(story.core.state)}
    assert {name: one.done for name, one in known.items()} == {
        "n0": mode is Mode.ENFORCE,
        "n1": mode is Mode.ENFORCE,
    }
    assert known["n0"].over_ns == 0
    assert known["n1"].over_ns - known["n1"].at_ns >= 100 * S
    assert decode_state(encode(story.core.state)) == story.core.state


def test_a_finding_that_is_raised_again_is_one_record_and_a_degraded_one_is_none() -> None:
    story = Story(5, Settings(mode=Mode.ADVISE))
    degraded = Finding(
        component="gpu/0", condition="Slow", severity=Severity.DEGRADED, message="slow"
    )
    story.find("n0", XID)
    story.find("n0", XID)
    story.find("n0", degraded)
    assert [one.condition for one in judged_isolations(story.core.state)] == [X]


def test_a_node_that_is_lost_keeps_its_record_until_it_is_back() -> None:
    story = Story(5, Settings(mode=Mode.ADVISE))
    story.find("n0", XID)
    story.lose("n0")
    (record,) = judged_isolations(story.core.state)
    assert record.over_ns == 0


def test_budgets_are_applied_in_the_order_of_time() -> None:
    state = _fleet(30)
    records = [judged(3, 30), judged(1, 10), judged(2, 20), judged(4, 40, 50)]
    outcome = what_if(state, records, {X}, 0)[X]
    assert (outcome.isolated, outcome.held_back) == (["n1", "n2"], ["n4", "n3"])
    assert outcome.why == "the budget of 2 isolated nodes"


def test_what_is_over_makes_room_and_is_counted_as_over_by_itself() -> None:
    state = _fleet(30)
    records = [judged(1, 10, 70), judged(2, 20, 5000), judged(3, 30)]
    outcome = what_if(state, records, {X}, 0)[X]
    assert (outcome.isolated, outcome.held_back) == (["n1", "n2", "n3"], [])
    assert outcome.by_itself == {"n1"}


def test_the_rate_of_an_hour_holds_what_comes_and_goes_back_until_the_hour_is_over() -> None:
    state = _fleet(30)
    records = [judged(number, 10 * number, 10 * number + 5) for number in range(5)]
    records.append(judged(9, 100))
    outcome = what_if(state, records, {X}, 0)[X]
    assert outcome.isolated == ["n0", "n1", "n2", "n3", "n9"]
    assert outcome.held_back == ["n4"]
    assert outcome.why == "the budget of 4 isolations an hour"


def test_what_was_isolated_for_something_else_takes_room_and_is_not_counted() -> None:
    state = _fleet(30)
    other = JudgedIsolation("n7", "LinkDown", 5, 0, done=True)
    records = [other, judged(1, 10), judged(2, 20)]
    outcome = what_if(state, records, {X}, 0)[X]
    assert (outcome.isolated, outcome.held_back, outcome.done) == (["n1"], ["n2"], set())


def test_what_began_before_counts_for_budgets_alone() -> None:
    state = _fleet(30)
    outcome = what_if(state, [judged(1, 10), judged(2, 100)], {X}, 50 * S)[X]
    assert (sorted(outcome.found), outcome.isolated) == (["n2"], ["n2"])


def test_of_several_conditions_at_once_each_node_counts_once() -> None:
    state = _fleet(30)
    records = [
        judged(1, 10, 70),
        judged(1, 20, 90, condition="LinkDown"),
        judged(2, 100, 130),
        judged(2, 110, condition="LinkDown"),
        judged(3, 200, 300),
    ]
    whole = together(what_if(state, records, {X, "LinkDown"}, 0).values())
    assert (sorted(whole.found), sorted(whole.isolated)) == (["n1", "n2", "n3"],) * 2
    # n2 was well of one of them only.
    assert whole.by_itself == {"n1", "n3"}
    assert (whole.held_back, whole.why) == ([], "")


def test_a_node_that_one_condition_isolates_is_not_held_back_by_another() -> None:
    state = _fleet(30)
    early = judged(3, 3, 100, condition="LinkDown")
    outcomes = what_if(
        state, [judged(1, 1, 500), judged(2, 2), early, judged(3, 600)], {X, "LinkDown"}, 0
    )
    assert (outcomes["LinkDown"].held_back, outcomes[X].isolated) == (["n3"], ["n1", "n2", "n3"])
    whole = together(outcomes.values())
    assert (whole.isolated, whole.held_back, whole.why) == (["n1", "n2", "n3"], [], "")


@pytest.mark.parametrize("seed", range(5))
def test_what_if_says_what_a_core_that_enforces_does(seed: int) -> None:
    """The same findings at the same times, once only advised on and once enforced."""
    rng = random.Random(seed)
    plan = [(rng.randrange(20), rng.choice((XID, LINK)), rng.uniform(1, 900)) for _ in range(12)]
    told = Story(20, Settings(mode=Mode.ADVISE))
    done = Story(20, Settings(mode=Mode.ADVISE, enforce=(X,)))
    for story in (told, done):
        for node, finding, after_s in plan:
            story.now_ns += int(after_s * S)
            due = story.core.state.timers.get("budget")
            if due is not None and due <= story.now_ns:
                story.tell(events.TimerDue("budget"), after_s=0)
            story.find(f"n{node}", finding)
    state = told.core.state
    outcome = what_if(state, list(judged_isolations(state)), {X}, 0)[X]
    really = {one.node for one in judged_isolations(done.core.state) if one.done}
    assert set(outcome.isolated) == really


def test_a_storm_of_all_records_that_are_kept_is_gone_through_in_a_moment() -> None:
    # A viewer may ask for it, and the controller does nothing else meanwhile. To look at all that
    # wait whenever there may be room was 1.8 million calls of functions here, for 2,000 nodes 6.3
    # million, which were seconds.
    state = _fleet(600)
    records = [judged(at % 600, at * 60, at * 60 + 10_800) for at in range(JUDGED_MAX)]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        outcome = what_if(state, records, {X}, 0)[X]
    finally:
        sys.setprofile(None)
    assert len(outcome.found) == 600
    assert calls < 600_000
