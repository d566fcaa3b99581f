"""Every open finding has an owner, and only its owner's word replaces or clears it."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Finding, FindingKey, Measurement, Mode, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import FindingOwner, NodeState
from everstep_controller.core.nodes import findings
from everstep_controller.core.turn import Turn
from everstep_controller.journal.codec import decode_event, decode_state, encode, kind_of
from unit.core.test_decisions import XID, Story

SKEWED = Finding(
    component="clock",
    condition="ClockSkewed",
    severity=Severity.DEGRADED,
    message="the clock differs",
    mode=Mode.ADVISE,
)
NUMBERS = (Measurement("offset_s", 7.25), Measurement("nodes", 40))


def found(finding: Finding = SKEWED, node: str = "n1") -> events.VerdictChanged:
    """Return the event with which a judge of the controller finds something."""
    return events.VerdictChanged(node, finding.key, finding, "+7.25 s from 40 nodes", NUMBERS)


def over(key: FindingKey = SKEWED.key, node: str = "n1") -> events.VerdictChanged:
    """Return the event with which a judge of the controller finds it over."""
    return events.VerdictChanged(node, key, None, "+0.01 s from 40 nodes", NUMBERS)


def held(story: Story, node: str = "n1") -> set[tuple[str, str]]:
    """Return owner and condition of what is open on a node."""
    findings = story.core.state.nodes[node].health.findings.values()
    return {(one.owner.value, one.finding.condition) for one in findings}


def test_a_finding_of_the_controller_survives_a_hello() -> None:
    story = Story()
    story.find("n1")
    story.tell(found())
    story.connect("n1")
    assert held(story) == {("controller", "ClockSkewed")}, "the agent has none any more"


def test_a_finding_of_the_controller_survives_a_reboot_of_the_node_and_a_restart_of_its_own() -> (
    None
):
    story = Story()
    story.tell(found())
    since_ns = next(iter(story.core.state.nodes["n1"].health.findings.values())).since_ns
    story.core = Core(decode_state(encode(story.core.state)))
    story.tell(events.ControllerStarted("0.1.0"))
    story.connect("n1", boot="2")
    assert held(story) == {("controller", "ClockSkewed")}
    (kept,) = story.core.state.nodes["n1"].health.findings.values()
    assert (kept.since_ns, kept.owner) == (since_ns, FindingOwner.CONTROLLER)


def test_the_agents_word_does_not_clear_what_the_controller_found_nor_the_other_way_round() -> None:
    story = Story()
    story.tell(found())
    story.find("n1", SKEWED)
    assert held(story) == {("controller", "ClockSkewed"), ("agent", "ClockSkewed")}
    cleared = events.Reported(
        story.origin("n1"),
        story.now_ns,
        reports.FindingCleared(SKEWED.key.component, SKEWED.key.condition, "fine"),
    )
    story.tell(cleared)
    assert held(story) == {("controller", "ClockSkewed")}

    story.find("n1", SKEWED)
    story.tell(over())
    assert held(story) == {("agent", "ClockSkewed")}


def test_the_agents_word_replaces_its_own_finding_and_keeps_when_that_began() -> None:
    story = Story()
    story.find("n1", replace(XID, severity=Severity.DEGRADED))
    began_ns = next(iter(story.core.state.nodes["n1"].health.findings.values())).since_ns
    story.find("n1", XID)
    (kept,) = story.core.state.nodes["n1"].health.findings.values()
    assert (kept.finding.severity, kept.since_ns) == (Severity.FATAL, began_ns)


def test_what_the_core_finds_by_its_own_state_is_cleared_by_nobody_else() -> None:
    story = Story()
    turn = Turn(story.core.state, story.now_ns)
    node = story.core.state.nodes["n1"]
    findings.raise_finding(turn, node, SKEWED)
    story.connect("n1")
    story.tell(over())
    assert held(story) == {("core", "ClockSkewed")}
    findings.clear_finding(turn, node, SKEWED.key, "it was lost once in a day")
    findings.clear_finding(turn, node, SKEWED.key, "it was lost once in a day")
    assert held(story) == set()
    said = [one.message for one in turn.actions if isinstance(one, actions.Announce)]
    assert said == [
        "degraded on n1: the clock differs",
        "ClockSkewed is over on n1: it was lost once in a day",
    ]


def test_a_verdict_makes_its_node_suspect_until_it_is_over() -> None:
    story = Story()
    raised = story.tell(found())
    assert story.state("n1") is NodeState.SUSPECT
    cleared = story.tell(over())
    assert story.state("n1") is NodeState.HEALTHY
    said = [one.message for one in raised + cleared if isinstance(one, actions.Announce)]
    assert "degraded on n1: the clock differs" in said
    assert "ClockSkewed is over on n1: +0.01 s from 40 nodes" in said


def test_a_verdict_that_is_only_observed_does_nothing_to_its_node() -> None:
    story = Story()
    story.tell(found(replace(SKEWED, mode=Mode.OBSERVE, severity=Severity.FATAL)))
    assert story.state("n1") is NodeState.HEALTHY
    assert held(story) == {("controller", "ClockSkewed")}


def test_a_verdict_on_a_node_that_nobody_knows_changes_nothing() -> None:
    story = Story()
    assert story.tell(found(node="nobody")) == []
    assert story.tell(over()) == []


def test_the_numbers_that_decided_are_in_the_journal() -> None:
    for event in (found(), over()):
        again = decode_event(kind_of(event), encode(event))
        assert again == event
        assert isinstance(again, events.VerdictChanged)
        assert again.measurements == NUMBERS
