"""Nodes that come back under another name, on the machine that they always were."""

import random
from functools import partial

import pytest

from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.invariants import Invariants
from simulation.seeds import seeds

STEPS = 60
_SHAPE = Shape(nodes=5, nodes_min=3, nodes_max=3, steps=STEPS, domains=3)


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
