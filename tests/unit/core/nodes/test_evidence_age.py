"""How old evidence may be that starts an action: what came late is shown, and isolates nobody."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import evidence_age
from everstep_controller.core.nodes.judged import judged_isolations
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import XID, S, Story

HOUR_S = 3600
DOWN = Finding(component="link/ib0", condition="LinkDown", severity=Severity.FATAL, message="down")


def raised(story: Story, age_s: float, finding: Finding = XID, began_s: float = 0.0) -> str:
    """Have n1 tell what it saw so long ago; return all that people are told."""
    seen_ns = story.now_ns - int(age_s * S)
    event = events.Reported(
        story.origin("n1"),
        seen_ns - int(began_s * S),
        reports.FindingRaised(finding),
        seen_ns=seen_ns,
    )
    return said(story.tell(event))


def cleared(story: Story, age_s: float, finding: Finding = XID) -> str:
    """Have n1 tell that this was over so long ago."""
    key, seen_ns = finding.key, story.now_ns - int(age_s * S)
    report = reports.FindingCleared(key.component, key.condition, "it answers")
    return said(story.tell(events.Reported(story.origin("n1"), seen_ns, report, seen_ns=seen_ns)))


def hello(story: Story, *findings: Finding) -> str:
    """Have the agent of n1 connect and say what is open."""
    event = events.NodeConnected(
        node="n1",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n1-box",
        highest_term=story.terms["n1-box"],
        host="n1",
        bulk_address="n1:1",
        liveness_address="n1:2",
        open_findings=findings,
    )
    return said(story.tell(event))


def said(done: list[actions.Action]) -> str:
    """Return what people are told."""
    return "\n".join(one.message for one in done if isinstance(one, actions.Announce))


def started(settings: Settings | None = None) -> Story:
    """Return the story of a controller that has run for a day."""
    story = Story(settings=settings)
    story.now_ns += 24 * HOUR_S * S
    return story


def test_what_was_seen_three_hours_ago_isolates_nobody_and_says_so() -> None:
    story = started()
    told = raised(story, 3 * HOUR_S)
    assert "its evidence is 3 h old: no action; it is acted on when it is seen again" in told
    assert story.owners("n1") == []
    assert story.state("n1") is NodeState.HEALTHY
    assert story.core.state.nodes["n1"].health.findings, "it is shown"


def test_what_is_old_counts_for_no_mode_that_would_have_been_enforced() -> None:
    story = started(Settings(mode=Mode.OBSERVE))
    raised(story, 3 * HOUR_S)
    assert list(judged_isolations(story.core.state)) == []
    hello(story, XID)
    assert [one.condition for one in judged_isolations(story.core.state)] == ["XidFatal"]


def test_programs_are_told_of_a_finding_its_mode_and_when_it_was_seen() -> None:
    story = started(Settings(mode=Mode.ADVISE))
    event = events.Reported(story.origin("n1"), story.now_ns - 7 * S, reports.FindingRaised(XID))
    (line,) = (
        one
        for one in story.tell(event)
        if isinstance(one, actions.Announce) and one.reason == "XidFatal"
    )
    assert line.about == actions.About(
        topic=actions.Topic.FINDING_RAISED,
        evidence_ns=event.at_ns,
        component="gpu/0",
        condition="XidFatal",
        severity="fatal",
        mode="advise",
        suggested_action="watch",
    )


def test_it_is_acted_on_when_the_agent_says_that_it_is_open() -> None:
    story = started()
    raised(story, 3 * HOUR_S)
    hello(story, XID)
    assert story.owners("n1") == ["automation"]


def test_it_is_acted_on_when_it_is_seen_again() -> None:
    story = started()
    raised(story, 3 * HOUR_S)
    raised(story, 1)
    assert story.owners("n1") == ["automation"]


def test_a_finding_that_began_long_ago_and_gets_worse_now_is_acted_on() -> None:
    story = started()
    raised(story, 1, replace(XID, severity=Severity.DEGRADED), began_s=5 * HOUR_S)
    assert story.owners("n1") == []
    raised(story, 1, XID, began_s=5 * HOUR_S)
    assert story.owners("n1") == ["automation"]


def test_what_an_outbox_replays_of_an_earlier_time_does_not_undo_what_the_agent_says_now() -> None:
    story = started()
    hello(story, XID)
    assert story.owners("n1") == ["automation"]
    raised(story, 3 * HOUR_S, replace(XID, severity=Severity.DEGRADED))
    cleared(story, 2 * HOUR_S)
    raised(story, HOUR_S)
    (held,) = story.core.state.nodes["n1"].health.findings.values()
    assert held.finding.severity is Severity.FATAL
    assert not held.late
    assert story.state("n1") is NodeState.REPAIRING
    cleared(story, 1)
    assert not story.core.state.nodes["n1"].health.findings


def renewals(story: Story, age_s: float, finding: Finding = XID) -> list[actions.RenewStream]:
    """Have n1 tell what it saw so long ago; return for what its agent is to say Hello anew."""
    seen_ns = story.now_ns - int(age_s * S)
    raised = events.Reported(
        story.origin("n1"), seen_ns, reports.FindingRaised(finding), seen_ns=seen_ns
    )
    return [one for one in story.tell(raised) if isinstance(one, actions.RenewStream)]


def test_what_was_held_up_on_an_open_stream_is_asked_for_in_a_new_hello_once() -> None:
    story = started()
    hello(story)
    story.now_ns += HOUR_S * S
    (renewal,) = renewals(story, 700)
    assert (renewal.node, renewal.reason) == (
        "n1",
        "XidFatal came 11 min late: say in a new Hello what is open now",
    )
    assert renewals(story, 650, DOWN) == [], "it is asked already"
    hello(story)
    assert not story.core.state.nodes["n1"].health.findings
    story.now_ns += HOUR_S * S
    assert len(renewals(story, 700)) == 1, "each Hello may be asked for once more"
    hello(story, XID)
    assert story.owners("n1") == ["automation"]


def test_what_comes_late_of_the_time_before_a_hello_is_not_asked_for() -> None:
    story = started()
    hello(story)
    assert renewals(story, 3 * HOUR_S) == []


def test_of_an_agent_that_is_away_and_of_what_comes_in_time_no_hello_is_asked_for() -> None:
    story = started()
    hello(story)
    story.now_ns += HOUR_S * S
    assert renewals(story, 60) == []
    story.tell(events.NodeDisconnected("n1"))
    assert renewals(story, 700, DOWN) == []


def test_what_was_over_before_the_controller_heard_of_it_is_shown_and_gone() -> None:
    story = started()
    raised(story, 3 * HOUR_S)
    assert "is over on n1" in cleared(story, 2 * HOUR_S)
    assert not story.core.state.nodes["n1"].health.findings
    assert story.owners("n1") == []


def test_people_are_told_what_an_agent_says_when_it_connects_and_what_it_says_no_more() -> None:
    story = started()
    assert "fatal on n1: Xid 79" in hello(story, XID)
    assert "fatal on n1" not in hello(story, XID), "nothing of it is new"
    assert "XidFatal is over on n1: its agent does not find it any more" in hello(story)


def test_a_controller_that_starts_with_other_modes_waits_for_the_agents() -> None:
    story = started(Settings(mode=Mode.ADVISE))
    raised(story, 1)
    story.core = Core(decode_state(encode(story.core.state)))
    story.tell(events.ControllerStarted("0.1.0"), after_s=3 * HOUR_S)
    story.tell(events.SettingsApplied(Settings(mode=Mode.ENFORCE), ()))
    assert story.owners("n1") == []
    (why,) = evidence_age.objections(story.core.state.nodes["n1"], story.now_ns)
    assert "XidFatal of gpu/0: its agent has not said since the controller began" in why
    hello(story, XID)
    assert story.owners("n1") == ["automation"]


def test_what_isolates_a_node_goes_on_doing_so_however_long_its_agent_is_away() -> None:
    story = started()
    raised(story, 1)
    story.tell(events.NodeDisconnected("n1"))
    story.tell(events.ControllerStarted("0.1.0"), after_s=5 * HOUR_S)
    story.tell(events.SettingsApplied(Settings(mode=Mode.ENFORCE, advise=("A",)), ()))
    assert "automation" in story.owners("n1")


def test_a_link_that_was_down_three_minutes_ago_may_be_up_by_now() -> None:
    story = started()
    raised(story, 180, DOWN)
    assert story.owners("n1") == []
    raised(story, 180, XID)
    assert story.owners("n1") == ["automation"], "another condition has ten minutes"


def test_an_operator_may_have_evidence_of_any_age_acted_on() -> None:
    story = started(Settings(mode=Mode.ENFORCE, evidence_max_age_ns=0))
    raised(story, 3 * HOUR_S)
    assert story.owners("n1") == ["automation"]


def test_what_a_judge_of_the_controller_finds_is_seen_all_the_time() -> None:
    story = started(Settings(mode=Mode.ADVISE))
    story.tell(events.VerdictChanged("n1", XID.key, XID, "unlike its peers", ()))
    story.tell(events.ControllerStarted("0.1.0"), after_s=3 * HOUR_S)
    story.tell(events.SettingsApplied(Settings(mode=Mode.ENFORCE), ()))
    assert story.owners("n1") == ["automation"]


@pytest.mark.parametrize("condition", ["XidFatal", "LinkDown"])
def test_a_shorter_general_limit_holds_for_all(condition: str) -> None:
    assert evidence_age.limit_ns(Settings(evidence_max_age_ns=S), condition) == S
