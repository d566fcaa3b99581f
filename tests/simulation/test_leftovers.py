"""What killed ranks leave on a node, memory or themselves: no job waits for it, or goes back."""

import random
from dataclasses import dataclass, field
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import AUTOMATION, NodeState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from everstep_sim.node import Leftovers
from everstep_sim.ranks import RELEASE_S, UNKILLABLE_S
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants
from simulation.seeds import seeds

_STEPS = 40
# Nodes beside what is left there; all that is known of a recovery is a few tenths of a second.
_RECOVERY_S = 5.0


@dataclass
class _Story:
    """A rank dies at some time, and one node of the job has something left of its own."""

    seed: int
    leftovers: Leftovers
    spares: int = 1
    node: str = ""
    died_ns: int = 0
    # When the second generation was ordered to start, and where.
    started_ns: int = 0
    members: list[str] = field(default_factory=list)
    repairing: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)

    def play(self) -> SimulatedCluster:
        invariants = Invariants()

        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            invariants(cluster, event)
            for node in cluster.controller.core.state.nodes.values():
                if node.state is NodeState.REPAIRING:
                    self.repairing.add(node.name)
                if any(claim.owner == AUTOMATION for claim in node.isolation.claims):
                    self.claimed.add(node.name)
            job = cluster.job
            starts = job is not None and job.state is JobState.STARTING
            if job is not None and starts and job.generation.number > 1 and not self.started_ns:
                self.started_ns = cluster.time.now_ns
                self.members = list(job.generation.members)

        shape = Shape(nodes=4 + self.spares, nodes_min=4, nodes_max=4, steps=_STEPS)
        cluster = SimulatedCluster(self.seed, shape, check)
        rng = random.Random(self.seed)
        cluster.time.after(rng.uniform(12, 25), partial(self._fail, cluster, rng))
        cluster.run(600)
        return cluster

    def _fail(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        members = cluster.whole_members()
        assert members
        self.node, dies = rng.sample(members, 2)
        cluster.fleet.nodes[self.node].leftovers = self.leftovers
        self.died_ns = cluster.time.now_ns
        cluster.kill_rank(dies)

    @property
    def down_s(self) -> float:
        """Return how long after the death the next generation was ordered."""
        return (self.started_ns - self.died_ns) / SECOND


def _ended_well(cluster: SimulatedCluster) -> bool:
    return cluster.job is None or cluster.job.ending.succeeded or JOB in cluster.over


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_memory_that_becomes_free_is_waited_for_and_nothing_else_happens(seed: int) -> None:
    story = _Story(seed, Leftovers(memory_s=random.Random(seed).uniform(1, 14)))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node in story.members
    assert story.leftovers.memory_s <= story.down_s <= story.leftovers.memory_s + _RECOVERY_S
    assert not story.claimed


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_spare_takes_the_place_of_a_node_whose_memory_does_not_become_free(seed: int) -> None:
    story = _Story(seed, Leftovers(memory_s=1000))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node not in story.members
    assert RELEASE_S <= story.down_s <= RELEASE_S + _RECOVERY_S
    assert not story.claimed, "a node is no worse for it than suspect"


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_without_a_spare_the_job_goes_on_there_and_waits_for_nobody(seed: int) -> None:
    story = _Story(seed, Leftovers(memory_s=1000), spares=0)
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node in story.members
    assert RELEASE_S <= story.down_s <= RELEASE_S + _RECOVERY_S


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_rank_that_a_driver_holds_has_its_node_repaired_and_its_job_goes_on(seed: int) -> None:
    story = _Story(seed, Leftovers(stuck=True))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node not in story.members
    assert UNKILLABLE_S <= story.down_s <= UNKILLABLE_S + _RECOVERY_S
    assert story.node in story.repairing
    assert story.claimed == {story.node}


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_a_rank_that_is_held_who_knows_where_costs_nobody_a_node(seed: int) -> None:
    story = _Story(seed, Leftovers(stuck=True, in_driver=False))
    cluster = story.play()
    assert _ended_well(cluster)
    assert story.node not in story.members
    assert story.down_s <= UNKILLABLE_S + _RECOVERY_S
    assert not story.repairing
    assert not story.claimed
