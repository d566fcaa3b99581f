"""Random schedules with agents that are none of the cluster's: the seed is the bug report."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.invariants import Invariants
from simulation.own_agents import STRAY, OwnAgents
from simulation.seeds import seeds

SEEDS = seeds(8, 60)
STEPS = 60
FAULTS_S = 90
END_S = 700
SHAPE = Shape(nodes=6, nodes_min=3, nodes_max=4, steps=STEPS, domains=3)


class OnlyItsOwnAgents(Invariants):
    """Besides all else: no agent is taken but the nodes' own."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = OwnAgents()

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        self.agents(cluster)


Fault = Callable[[Faults, str, random.Random], None]


def _removed(faults: Faults, name: str, rng: random.Random) -> None:
    """Cut a node off for so long that it is lost, remove it, and have it come back."""
    for_s = rng.uniform(10, 30)
    faults.cluster.cut_off(name)
    faults.later(for_s, partial(faults.cluster.remove_node, name))
    faults.later(for_s + rng.uniform(0.1, 5), partial(faults.cluster.return_node, name))


STRANGERS: dict[str, Fault] = {
    "twin": lambda f, name, rng: f.twin(name, rng.choice([5, 20, 60])),
    "foreigner": lambda f, name, rng: f.foreigner(rng.choice([STRAY, name]), rng.uniform(1, 60)),
    "liar": lambda f, _, rng: f.liar(STRAY, rng.uniform(1, 60), by_generation=rng.random() < 0.5),
}
FAULTS: dict[str, Fault] = {
    **STRANGERS,
    "agent restarts": lambda f, name, rng: f.restart_agent(
        name, rng.uniform(1, 10), announced=rng.random() < 0.5
    ),
    "agent pauses": lambda f, name, rng: f.pause_agent(name, rng.choice([0.5, 4, 14, 30])),
    "controller restarts": lambda f, _, rng: f.cluster.restart_controller(rng.uniform(0.2, 20)),
    "rank": lambda f, name, _: f.cluster.kill_rank(name),
    "removed": _removed,
}


def run(seed: int, check: Invariants, kinds: dict[str, Fault]) -> SimulatedCluster:
    """Run one seeded schedule to the end of its job."""
    cluster = SimulatedCluster(seed, SHAPE, check)
    faults, rng = Faults(cluster), random.Random(seed + 1)
    at_s = 8.0
    while at_s < FAULTS_S:
        fault = kinds[rng.choice(list(kinds))]
        cluster.time.after(at_s, partial(fault, faults, rng.choice(faults.names), rng))
        at_s += rng.uniform(2, 12)
    for name in faults.names:
        cluster.time.after(FAULTS_S + 100, partial(cluster.return_node, name))
        cluster.time.after(FAULTS_S + 110, partial(cluster.operator, name, isolate=False))
    cluster.run(END_S)
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_no_stranger_is_taken_and_no_job_is_hurt_for_good(seed: int) -> None:
    job = run(seed, OnlyItsOwnAgents(), FAULTS).job
    assert job is not None
    if "cannot be restored" in job.reason:
        assert job.state is JobState.WAITING_STATE
        return
    assert job.ending.succeeded, (job.state, job.reason)


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_strangers_alone_cost_a_job_no_step_and_no_second(seed: int) -> None:
    check = OnlyItsOwnAgents()
    cluster = run(seed, check, STRANGERS)
    assert check.agents.refused
    assert not check.agents.replaced
    assert cluster.job is not None
    assert cluster.job.generation.number == 1
    assert all(len(times) == 1 for times in cluster.ranks.completed.values())
