"""Nodes that come back under another name, on the machine that they always were."""

import random
from dataclasses import replace
from functools import partial

import pytest

from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import OPERATOR
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.invariants import Invariants
from simulation.seeds import seeds

STEPS = 60
_SHAPE = Shape(nodes=5, nodes_min=3, nodes_max=3, steps=STEPS, domains=3, devices=1)


def _play(seed: int) -> SimulatedCluster:
    """Rename one or two nodes, members or spares, some while the controller is away as well."""
    cluster = SimulatedCluster(seed, _SHAPE, Invariants())
    faults, rng = Faults(cluster), random.Random(seed + 1)
    for number, name in enumerate(rng.sample(faults.names, rng.randint(1, 2))):
        at_s = rng.uniform(10, 60)
        rename = partial(faults.rename_node, name, f"renamed-{number}", rng.uniform(0.5, 10))
        faults.later(at_s, partial(rename, announced=rng.random() < 0.5))
        if rng.random() < 0.3:
            away_s = rng.uniform(0.2, 15)
            faults.later(at_s, partial(cluster.restart_controller, away_s))
    faults.later(rng.uniform(20, 90), lambda: cluster.kill_rank(_member(cluster)))
    cluster.run(900)
    return cluster


def _member(cluster: SimulatedCluster) -> str:
    whole = cluster.whole_members()
    return whole[0] if whole else next(iter(cluster.fleet.nodes))


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_a_job_ends_well_whose_nodes_come_back_under_other_names(seed: int) -> None:
    cluster = _play(seed)
    jobs = list(cluster.controller.core.state.jobs.values())
    states = [(job.state, job.reason) for job in jobs]
    assert any(job.state is JobState.ENDED and job.ending.succeeded for job in jobs), states
    assert set(cluster.ranks.completed) == set(range(STEPS))
    # What was made before is not made from the start again.
    assert len(cluster.ranks.completed[0]) == 1


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_what_an_operator_said_of_a_node_holds_under_its_new_name(seed: int) -> None:
    rng = random.Random(seed)
    cluster = SimulatedCluster(seed, replace(_SHAPE, steps=200), Invariants())
    faults = Faults(cluster)
    name = rng.choice(faults.names)
    faults.later(rng.uniform(8, 40), partial(cluster.operator, name, isolate=True))
    at_s = rng.uniform(42, 60)
    if rng.random() < 0.5:
        faults.later(at_s, partial(faults.rename_node, name, "renamed", rng.uniform(0.5, 10)))
    else:  # with a boot, after which it has another outbox, and its cards tell that it is the same
        faults.later(at_s, partial(faults.lose_power, [name]))
        faults.later(at_s + 20, partial(faults.rename_now, name, "renamed"))
        faults.later(at_s + 21, partial(faults.give_power, "renamed"))
    for _ in range(rng.randint(0, 2)):
        away = partial(cluster.restart_controller, rng.uniform(0.2, 20))
        faults.later(at_s + rng.uniform(-5, 30), away)
    cluster.run(at_s + 150)
    nodes = cluster.controller.core.state.nodes
    assert nodes["renamed"].claim_of(OPERATOR) is not None, nodes["renamed"].reason
    assert name not in nodes
    assert len(nodes) == _SHAPE.nodes
    assert "renamed" not in cluster.whole_members()
