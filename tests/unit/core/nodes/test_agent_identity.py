"""Whose Hello is taken: agents that have other names now, and that know jobs of long ago."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.reports import JobOnNode
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.nodes.agent_identity import HelloDecision, findings, judge_hello
from unit.core.test_decisions import Story

_OVER_A_WEEK_S = 8 * 86_400


def _hello(node: str, *jobs: JobOnNode, term: int = 0) -> events.NodeConnected:
    return events.NodeConnected(
        node=node,
        boot_id="1",
        agent_version="0.1.0",
        outbox=f"{node}-box",
        highest_term=term,
        host=node,
        jobs=jobs,
    )


def _conditions(story: Story) -> list[str]:
    return [one.finding.condition for one in findings(story.core.state)]


def test_agents_that_were_given_other_names_are_taken_under_these() -> None:
    story = Story(nodes=6)
    for old, new in (("n4", "gpu-4"), ("n5", "gpu-5")):
        story.tell(events.AgentLeaving(old, "told to stop"))
        story.tell(events.NodeDisconnected(old))
        story.connect(new, outbox=f"{old}-box")
        assert story.state(new) is NodeState.HEALTHY
    assert not story.core.state.refused_agents


def test_an_agent_that_has_left_its_cluster_is_no_stranger_any_more() -> None:
    story = Story(nodes=6)
    story.tell(events.ClusterNamed("mine", 0))
    foreign = replace(_hello("n6"), cluster_id="another", outbox="before")
    story.tell(replace(foreign, knocks=True))
    assert _conditions(story) == ["AgentQuarantined"]
    story.connect("n6")
    assert not _conditions(story)
    story.tell(replace(foreign, knocks=True))
    assert _conditions(story), "one that comes still is told of again"


def test_an_agent_that_has_this_term_from_another_controller_is_a_stranger() -> None:
    story = Story(nodes=6)
    hello = _hello("stray", term=story.core.state.term)
    assert judge_hello(story.core.state, hello, story.now_ns).decision is HelloDecision.REFUSED
    story.lose("n5")
    story.tell(events.NodeRemoved("n5", "ann", "sold"))
    story.tell(events.ControllerStarted("0.1.0"))
    hello = _hello("n5", term=story.core.state.term)
    assert judge_hello(story.core.state, hello, story.now_ns).decision is HelloDecision.REFUSED


def test_a_job_that_was_forgotten_is_no_sign_of_an_old_journal() -> None:
    story = Story(nodes=4)
    story.run()
    job = story.core.state.newest("j")
    seen = JobOnNode("j", job.generation.number, launcher=False, job_id=job.id)
    story.tell(events.NodeDisconnected("n3"))
    left = reports.LauncherLeft("its user ended it", by_user=True)
    story.tell(events.Reported(story.origin("n0"), story.now_ns, left, "j"))
    story.stop_all()
    assert job.state is JobState.ENDED
    story.tell(events.TimerDue(f"forget/{job.id}"), after_s=_OVER_A_WEEK_S)
    state, now_ns = story.core.state, story.now_ns
    assert state.job("j") is None
    assert judge_hello(state, _hello("n3", seen), now_ns).decision is HelloDecision.TAKEN
    later = replace(seen, job_id=f"j-{state.event_count + 1}")
    assert judge_hello(state, _hello("n3", later), now_ns).decision is HelloDecision.REFUSED
