"""Slow nodes in virtual time: swapped for what their agents find, and never for what ranks tell."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import AUTOMATION
from everstep_controller.core.model.pair_test import PAIR_HOLD_NS, PairOutcome
from everstep_controller.journal.codec import encode
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.controller import fold
from everstep_sim.fleet import JOB
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants
from simulation.seeds import seeds
from simulation.slow_ranks import Slowness, SlowTime

_ENFORCED = ("SlowNode",)
_SHAPE = Shape(nodes=7, nodes_min=5, nodes_max=5, steps=150, enforced=_ENFORCED)


@dataclass
class _Story:
    """Plays slow nodes, and notes who was claimed, and which jobs nominated whom."""

    seed: int
    slow: list[SlowTime] = field(default_factory=list)
    shape: Shape = _SHAPE
    then: Callable[[SimulatedCluster], None] = lambda _: None
    # The node that is slow, a member of the first job at its begin.
    node: str = ""
    # When it is slow, and when its agent finds why, if it does.
    slow_s: tuple[float, float] = (20, 1e9)
    found_s: float = 0.0
    claimed: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)
    members: dict[str, list[str]] = field(default_factory=dict)
    named: dict[str, set[str]] = field(default_factory=dict)
    # By job and generation: how long its next plan has waited for pair tests, in ns.
    held: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def play(self, until_s: float = 3000) -> SimulatedCluster:
        invariants = Invariants()

        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            invariants(cluster, event)
            state = cluster.controller.core.state
            for node in state.nodes.values():
                if any(claim.owner == AUTOMATION for claim in node.isolation.claims):
                    self.claimed.add(node.name)
            for job in state.jobs.values():
                self.plans.add(job.slow.plan)
                self._note_held(cluster, job)
                self.members[job.name] = list(job.generation.members) or self.members.get(
                    job.name, []
                )

        cluster = SimulatedCluster(self.seed, self.shape, check)
        slowness = Slowness(cluster, self.seed, self.slow)
        self.named = slowness.named
        self.then(cluster)
        if not self.slow:
            cluster.time.after(_FORMED_S, partial(self._begin, cluster))
        cluster.run(until_s)
        return cluster

    def _note_held(self, cluster: SimulatedCluster, job: JobRecord) -> None:
        seen = self.held.setdefault((job.id, job.generation.number), [])
        if job.state is JobState.STOPPING and job.generation.pair_tested:
            seen.append(cluster.time.now_ns)

    def _begin(self, cluster: SimulatedCluster) -> None:
        """Have a member of the first job be slow, and its agent find why."""
        assert cluster.job is not None
        alone = [f"n{place}" for place in range(self.shape.nodes - self.shape.shared)]
        self.node = next(one for one in cluster.job.generation.members[1:] if one in alone)
        begin_s, end_s = self.slow_s
        self.slow.append(SlowTime(self.node, begin_s=begin_s, end_s=end_s))
        if self.found_s:
            cluster.time.after(self.found_s - _FORMED_S, partial(cluster.low_clocks, self.node))


_FORMED_S = 15


def _repeated(cluster: SimulatedCluster) -> list[int]:
    """Return the steps that were made more than once."""
    made = [ranks.completed for ranks in cluster.ranks_of.values()]
    return [step for one in made for step, by in one.items() if len(by) > 1]


def _ended_well(cluster: SimulatedCluster) -> bool:
    known = {job.name: job for job in cluster.controller.core.state.jobs.values()}
    return all(
        name in cluster.over or (name in known and known[name].ending.succeeded)
        for name in cluster.shape.names
    )


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_a_slow_node_whose_agent_finds_why_is_swapped_and_no_step_is_lost(seed: int) -> None:
    story = _Story(seed, found_s=random.Random(seed).uniform(16, 80))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert story.node not in story.members[JOB]
    assert _repeated(cluster) == []


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_without_a_finding_a_slow_node_is_told_and_left_where_it_is(seed: int) -> None:
    story = _Story(seed)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node in story.named[JOB]
    assert any(f"everstep drain {story.node}" in plan for plan in story.plans)
    assert not story.claimed
    assert story.node in story.members[JOB]


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_without_the_operators_word_a_finding_changes_nothing(seed: int) -> None:
    story = _Story(seed, shape=replace(_SHAPE, enforced=()), found_s=17)
    assert _ended_well(story.play())
    assert story.node in story.named[JOB]
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_for_a_cause_that_nodes_share_nobody_is_swapped(seed: int) -> None:
    shape = replace(_SHAPE, nodes=14, nodes_min=12, nodes_max=12, domains=3)
    slow: list[SlowTime] = []
    low: list[str] = []

    def share(cluster: SimulatedCluster) -> None:
        domains = {name: node.domain for name, node in cluster.fleet.nodes.items()}
        ours = [name for name, domain in domains.items() if domain == domains["n1"]]
        slow.extend(SlowTime(name, begin_s=40) for name in ours)
        low.extend(ours)
        for name in ours:
            cluster.time.after(10, partial(cluster.low_clocks, name))

    story = _Story(seed, slow, shape, share)
    assert _ended_well(story.play())
    assert len(low) >= 4
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_who_is_healed_is_named_no_more(seed: int) -> None:
    story = _Story(seed, slow_s=(20, 70))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node in story.named[JOB]
    told = [event for event, _ in cluster.controller.journal]
    judged = [event for event in told if isinstance(event, events.SlowJudged)]
    assert judged[0].parts
    assert judged[-1].parts == ()


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_with_a_controller_that_goes_and_comes_the_swap_is_made_once(seed: int) -> None:
    rng = random.Random(seed)

    def disturb(cluster: SimulatedCluster) -> None:
        for _ in range(3):
            at_s, away_s = rng.uniform(20, 90), rng.uniform(0.5, 10)
            cluster.time.after(at_s, partial(cluster.restart_controller, away_s))

    shape = replace(_SHAPE, crash_chance=0.01)
    story = _Story(seed, shape=shape, then=disturb, found_s=17)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert story.node not in story.members[JOB]
    # Steps may be made twice: after the chosen one agents hear no word to stop.
    again = fold(cluster.controller.journal)
    assert encode(again.state) == encode(cluster.controller.core.state)


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_of_two_jobs_the_one_that_waits_moves(seed: int) -> None:
    shape = replace(_SHAPE, nodes=14, jobs=2, shared=2)
    story = _Story(seed, shape=shape, found_s=17)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert set(story.named) == {JOB}
    assert _repeated(cluster) == []


def _kill_first(cluster: SimulatedCluster) -> None:
    assert cluster.job is not None
    cluster.kill_rank(cluster.job.generation.members[0])


def _tested(cluster: SimulatedCluster, factor: float) -> None:
    """Have fixed work take longer on the slow node, and its job be stopped for something else."""

    def begin() -> None:
        assert cluster.job is not None
        members = cluster.job.generation.members
        cluster.fleet.nodes[members[1]].work_factor = factor

    cluster.time.after(_FORMED_S, begin)
    cluster.time.after(60, partial(_kill_first, cluster))


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_at_the_next_boundary_a_pair_test_confirms_it_and_it_is_swapped(seed: int) -> None:
    story = _Story(seed, then=lambda cluster: _tested(cluster, 1.3))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.claimed == {story.node}
    assert story.node not in story.members[JOB]


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_where_its_work_takes_as_long_it_stays(seed: int) -> None:
    story = _Story(seed, then=lambda cluster: _tested(cluster, 1.0))
    cluster = story.play()
    assert _ended_well(cluster)
    assert not story.claimed
    result = cluster.controller.core.state.nodes[story.node].pair.result
    assert result is not None
    assert result.outcome is PairOutcome.EQUAL


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_no_test_delays_a_recovery_beyond_its_deadline(seed: int) -> None:
    """Agents that never do the work, and a controller that goes meanwhile."""

    def disturb(cluster: SimulatedCluster) -> None:
        _tested(cluster, 1.3)
        for node in cluster.fleet.nodes.values():
            node.ignores[actions.RunPairTest] = 10**18
        cluster.time.after(60 + 12 * (seed % 3), partial(cluster.restart_controller, 2))

    story = _Story(seed, then=disturb)
    cluster = story.play()
    assert _ended_well(cluster)
    assert not story.claimed
    waited_ns = [seen[-1] - seen[0] for seen in story.held.values() if seen]
    assert waited_ns
    # A controller that is away ends nothing; what is left is ended when it is back.
    assert max(waited_ns) <= PAIR_HOLD_NS + 3 * SECOND
    again = fold(cluster.controller.journal)
    assert encode(again.state) == encode(cluster.controller.core.state)


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_a_job_that_lies_about_its_ranks_gets_no_node_isolated(seed: int) -> None:
    rng = random.Random(seed)
    lies = [
        SlowTime(f"n{rng.randrange(6)}", rng.choice([1.2, 2.0, 50.0]), at, at + 40, job=JOB)
        for at in range(15, 150, 20)
    ]

    def find(cluster: SimulatedCluster) -> None:
        cluster.time.after(10, partial(cluster.low_clocks, "n6"))

    story = _Story(seed, lies, then=find)
    cluster = story.play()
    assert _ended_well(cluster)
    assert not story.claimed
    assert _repeated(cluster) == []
    assert cluster.ranks.completed.keys() == set(range(_SHAPE.steps))
