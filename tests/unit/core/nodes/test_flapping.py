"""A finding that comes and goes costs a few changes a minute, and ends when it stays away."""

import random
from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Severity
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from unit.core.test_decisions import XID, S, Story


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
    assert story.core.state.nodes["n0"].health.findings
    _let_pass(story, 6)
    assert story.core.state.nodes["n0"].health.findings == {}
    assert story.state("n0") is NodeState.VALIDATING


def test_it_stays_open_while_it_comes_again() -> None:
    story = Story()
    _flap(story, "n0", 20)
    for _ in range(20):
        _let_pass(story, 20)
        story.find("n0")
        _clear(story, "n0")
        assert story.core.state.nodes["n0"].health.findings
    assert story.state("n0") is NodeState.REPAIRING


@pytest.mark.parametrize("apart_s", [31, 60])
def test_what_comes_back_seldom_is_cleared_at_once(apart_s: int) -> None:
    story = Story()
    for _ in range(6):
        story.find("n0")
        _clear(story, "n0")
        assert story.core.state.nodes["n0"].health.findings == {}
        story.now_ns += apart_s * S


def test_a_finding_that_was_never_cleared_is_kept_open_by_nothing() -> None:
    story = Story()
    story.find("n0")
    story.find("n0")
    story.find("n0")
    _clear(story, "n0")
    assert story.core.state.nodes["n0"].health.findings == {}


def _say(story: Story, severity: Severity | None, after_s: float = 0.1) -> list[actions.Action]:
    """Tell, as the record of an agent, how bad a component of n0 is; None: it is well."""
    report: reports.FindingRaised | reports.FindingCleared
    if severity is None:
        report = reports.FindingCleared("gpu/0", "XidFatal", "well")
    else:
        report = reports.FindingRaised(replace(XID, severity=severity))
    event: events.Event = events.Reported(story.origin("n0"), story.now_ns, report)
    return story.tell(event, after_s=after_s)


def _found(story: Story) -> Severity | None:
    held = list(story.core.state.nodes["n0"].health.findings.values())
    return held[0].finding.severity if held else None


def test_what_gets_worse_and_better_ten_times_a_second_is_a_few_changes() -> None:
    story = Story()
    done: list[actions.Action] = []
    for number in range(600):
        done += _say(story, Severity.DEGRADED if number % 2 else Severity.FATAL)
    told = [action.reason for action in done if isinstance(action, actions.Announce)]
    assert told.count("XidFatal") <= 5
    assert _found(story) is Severity.FATAL
    _let_pass(story, 61)
    assert _found(story) is Severity.DEGRADED


def test_what_flaps_and_gets_worse_is_worse_at_once() -> None:
    story = Story()
    for number in range(20):
        _say(story, Severity.DEGRADED if number % 2 else None)
    _say(story, None)
    _say(story, Severity.FATAL)
    assert _found(story) is Severity.FATAL
    assert story.state("n0") is NodeState.REPAIRING


def test_a_hello_tells_what_a_finding_has_become() -> None:
    story = Story()
    _say(story, Severity.DEGRADED)
    since_ns = story.core.state.nodes["n0"].health.findings["agent gpu/0 XidFatal"].since_ns
    hello = events.NodeConnected(
        node="n0",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n0-box",
        highest_term=0,
        host="n0",
        open_findings=(replace(XID, severity=Severity.FATAL),),
    )
    story.tell(hello)
    assert _found(story) is Severity.FATAL
    assert story.core.state.nodes["n0"].health.findings["agent gpu/0 XidFatal"].since_ns == since_ns


def test_a_hello_tells_since_when_findings_are_open_as_far_as_the_agent_knows() -> None:
    story = Story()
    other = replace(XID, component="gpu/1")
    hello = events.NodeConnected(
        node="n0",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n0-box",
        highest_term=0,
        host="n0",
        open_findings=(XID, other),
        findings_since_ns=(5,),
    )
    story.tell(hello)
    found = story.core.state.nodes["n0"].health.findings
    assert [held.since_ns for held in found.values()] == [5, story.now_ns]


def test_what_settled_is_the_findings_last_word() -> None:
    story = Story()
    _say(story, Severity.FATAL)
    story.tell(events.FindingSettled("n0", XID.key, story.now_ns, None, "well"))
    assert _found(story) is None
    story.tell(events.FindingSettled("n0", XID.key, story.now_ns, XID, ""))
    assert _found(story) is Severity.FATAL
    assert story.state("n0") is NodeState.REPAIRING
    assert not story.tell(events.FindingSettled("unknown", XID.key, story.now_ns, XID, ""))


@pytest.mark.parametrize("seed", range(30))
def test_whatever_an_agent_tells_changes_are_few_and_the_last_word_counts(seed: int) -> None:
    rng, story = random.Random(seed), Story()
    said: list[int] = []
    word: Severity | None = None
    for _ in range(rng.randrange(2, 800)):
        word = rng.choice([None, *Severity])
        done = _say(story, word, 3.0 if rng.random() < 0.02 else 0.1)
        told = [action.reason for action in done if isinstance(action, actions.Announce)]
        said += [story.now_ns] * sum(reason.startswith("XidFatal") for reason in told)
        if rng.random() < 0.2:
            _let_pass(story, 0.1)
    _let_pass(story, 130)
    assert _found(story) is word
    # Three times raised and over, and each time it may get worse twice; of 600 words.
    assert max(sum(at <= one < at + 60 * S for one in said) for at in said) <= 16
