"""An agent whose stream ends again and again is a finding, gets ranks last, and no time anew."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.job import JobRecord, JobSpec, JobState, Launcher, Members
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes.claims import no_spare, why_ineligible
from everstep_controller.core.nodes.stream_flaps import ENDS, STREAM_FLAPPING
from everstep_controller.core.recovery.planning import candidates, choose_members
from unit.core.recovery.test_deadlines import ANSWER_S, Agents
from unit.core.test_decisions import Story

_FIT = (NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION)


class _Known(NamedTuple):
    """What a plan knows of a node with a launcher."""

    usable: bool
    flaps: bool
    health: NodeState


def _reconnect(story: Story, node: str, times: int, every_s: float = 20.0) -> None:
    """Have a node's stream end and open again; each of these silences is too short to be one."""
    for _ in range(times):
        story.tell(events.NodeDisconnected(node), after_s=every_s - 1)
        story.now_ns += 800_000_000
        story.connect(node, jobs=_seen(story, node))


def _seen(story: Story, node: str) -> tuple[JobOnNode, ...]:
    """Return what an agent knows of the job when it connects: all that it did before."""
    job = story.core.state.job("j")
    if job is None or node not in job.launchers:
        return ()
    number = job.generation.number if node in job.generation.members else 0
    return (JobOnNode("j", number, True),)


def _flaps(story: Story, node: str) -> bool:
    found = story.core.state.nodes[node].health.findings.values()
    return STREAM_FLAPPING.name in [held.finding.condition for held in found]


def _names(story: Story) -> list[str]:
    return [node.name for node in candidates(story.core.state, story.core.state.newest("j"))]


def _stay_open(story: Story, node: str, seconds: float) -> None:
    story.now_ns += int(seconds * 1e9)
    story.tell(events.TimerDue(f"stream/{node}"), after_s=0)


def test_an_agent_that_reconnects_every_20_s_is_a_finding_once() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS - 1)
    assert not _flaps(story, "n0")
    _reconnect(story, "n0", 1)
    assert _flaps(story, "n0")
    told: list[actions.Action] = []
    for _ in range(3 * 3600 // 20):
        told += story.tell(events.NodeDisconnected("n0"), after_s=19)
        story.connect("n0")
    said = [action.reason for action in told if isinstance(action, actions.Announce)]
    assert STREAM_FLAPPING.name not in said
    assert _flaps(story, "n0")


@pytest.mark.parametrize("every_s", [130, 3600])
def test_an_agent_that_is_restarted_now_and_then_is_none(every_s: float) -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", 4 * ENDS, every_s)
    assert not _flaps(story, "n0")


def test_a_stream_that_replaces_an_open_one_counts_as_an_end() -> None:
    story = Story(nodes=6)
    for _ in range(ENDS):
        story.connect("n0")
    assert _flaps(story, "n0")


def test_it_is_over_when_a_stream_was_open_for_ten_minutes() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS)
    _stay_open(story, "n0", 590)
    assert _flaps(story, "n0")
    _stay_open(story, "n0", 20)
    assert not _flaps(story, "n0")
    assert story.core.state.index.flapping == []
    assert not story.core.state.nodes["n0"].streams.flaps_since_ns


def test_it_is_no_candidate_for_new_ranks_and_keeps_those_that_it_has() -> None:
    story = Story(nodes=6)
    story.run()
    story.join("n2")
    _reconnect(story, "n2", ENDS)
    assert "n2" not in _names(story)
    story = Story(nodes=6)
    story.run()
    _reconnect(story, "n0", ENDS)
    assert "n0" in _names(story)
    assert story.core.state.newest("j").state is JobState.RUNNING


def test_a_spare_takes_the_place_of_one_that_flaps_when_the_job_stops_anyway() -> None:
    story = Agents()
    story.run()
    story.join("n2")
    _reconnect(story, "n0", ENDS)
    story.exit_rank("n1")
    assert story.members == ["n2", "n1"]


def test_where_no_other_node_can_it_takes_the_place_of_a_lost_one_and_the_plan_says_so() -> None:
    story = Agents()
    story.run()
    story.join("n2")
    _reconnect(story, "n2", ENDS)
    done = story.tell(events.OperatorIsolated("n1", "ann", "fan"))
    assert story.members == ["n0", "n2"]
    assert story.job.state is JobState.WARMING
    told = "no other node was left than n2, and the stream of its agent ends again and again"
    said = [one.message for one in [*done, *story.done] if isinstance(one, actions.Announce)]
    assert [one for one in said if told in one]


def test_another_spare_goes_before_it() -> None:
    story = Story(nodes=6)
    story.run()
    for name in ("n2", "n3"):
        story.join(name)
    _reconnect(story, "n2", ENDS)
    story.tell(events.OperatorIsolated("n1", "ann", "fan"))
    story.stop_all()
    assert story.core.state.newest("j").generation.members == ["n0", "n3"]


def test_a_job_without_any_other_node_begins_on_it_after_its_last_call() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n1", ENDS)
    story.join("n0")
    story.join("n1")
    job = story.core.state.newest("j")
    assert job.state is JobState.FORMING
    story.tell(events.TimerDue(f"forming/{job.id}"), after_s=11)
    assert job.generation.members == ["n0", "n1"]
    assert "no other node was left than n1" in job.reason


def test_a_job_goes_on_where_a_node_that_flaps_waits_and_no_other_comes() -> None:
    story = Agents()
    story.run()
    story.tell(events.OperatorIsolated("n1", "ann", "fan"))
    assert story.job.state is JobState.WAITING_CAPACITY
    _reconnect(story, "n2", ENDS)
    story.join("n2")
    assert story.members == ["n0", "n2"]


def test_what_waits_is_told_when_it_would_be_taken() -> None:
    story = Story(nodes=6)
    story.run()
    story.join("n2")
    _reconnect(story, "n2", ENDS)
    node = story.core.state.nodes["n2"]
    told = "n2 takes new ranks only where no other node can: the stream of its agent ends again"
    assert told in why_ineligible(story.core.state, node)
    assert no_spare(node).startswith(told)


@settings(max_examples=300, deadline=None)
@given(
    nodes=st.lists(st.builds(_Known, st.booleans(), st.booleans(), st.sampled_from(_FIT))),
    members=st.integers(0, 4),
    size=st.tuples(st.integers(1, 4), st.integers(0, 3)),
    reform=st.booleans(),
)
def test_a_plan_takes_them_exactly_where_it_would_have_too_few_without(
    nodes: list[_Known], members: int, size: tuple[int, int], reform: bool
) -> None:
    """Compare each plan with that of the same world in which those that flap have not joined."""
    fewest = min(size[0], members) if members else size[0]
    most = max(fewest, members) + size[1]
    spec = JobSpec(uid=1, token_sha256="t", nodes_min=fewest, nodes_max=most, reform=reform)
    nodes = nodes[:9] + [_Known(False, False, NodeState.LOST)] * (members - len(nodes))
    whole, without = (_choose(nodes, members, spec, last=last) for last in (True, False))
    seats = {f"n{place}" for place in range(members)}
    able = {f"n{place}" for place, node in enumerate(nodes) if node.usable}
    flaps = {f"n{place}" for place, node in enumerate(nodes) if node.flaps}
    wanted = members or fewest
    assert set(whole) <= able
    if len(without) >= wanted:
        assert whole == without
        return
    assert len(whole) == min(wanted, len(able)) or not whole
    if not whole:
        assert len(able) < (fewest if reform else wanted)
    if set(whole) & flaps - seats:
        assert able - flaps <= set(whole)


def _choose(nodes: list[_Known], members: int, spec: JobSpec, *, last: bool) -> list[str]:
    """Return whom a plan takes of all nodes, or of those that are not its last resorts."""
    job = JobRecord(id="j-1", name="j", spec=spec, ledger=Ledger(0))
    job.generation.members = Members(f"n{place}" for place in range(members))
    known_nodes: dict[str, NodeRecord] = {}
    for place, known in enumerate(nodes):
        health = known.health if known.usable else NodeState.LOST
        node = NodeRecord(f"n{place}", health, liveness=NodeLiveness(connected=known.usable))
        known_nodes[node.name] = node
        node.streams.flaps_since_ns = int(known.flaps)
        if last or place < members or not known.flaps:
            job.launchers[node.name] = Launcher(1)
    return choose_members(State(jobs={job.id: job}, nodes=known_nodes), job)[0]


def test_where_many_streams_flap_the_cause_is_no_node() -> None:
    story = Story(nodes=10)
    for _ in range(ENDS):
        for index in range(10):
            story.tell(events.NodeDisconnected(f"n{index}"))
            story.connect(f"n{index}")
    assert sum(_flaps(story, f"n{index}") for index in range(10)) == 2


def test_a_node_that_is_lost_flaps_no_more() -> None:
    story = Story(nodes=6)
    _reconnect(story, "n0", ENDS)
    story.lose("n0")
    assert not _flaps(story, "n0")
    assert story.core.state.index.flapping == []


def test_an_agent_that_reconnects_again_and_again_has_no_time_anew_for_its_orders() -> None:
    story = Agents()
    story.run()
    story.join("n2")
    _reconnect(story, "n1", ENDS)
    story.deaf = (actions.StopGeneration,)
    story.exit_rank("n0")
    assert story.job.state is JobState.STOPPING
    for _ in range(2 * ANSWER_S // 10):
        story.wait_s(9)
        # The new stream is there before the end of the old one is noticed: it is never doubtful.
        story.connect("n1", jobs=_seen(story, "n1"))
    assert "n1" in story.job.overdue
    assert story.members == ["n0", "n2"]
