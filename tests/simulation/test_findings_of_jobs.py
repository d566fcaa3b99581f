"""Findings about what a job's user did, on all nodes: no node pays, whatever else breaks."""

import random
from functools import partial

import pytest

from everstep_common.judging.findings import Severity
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import JOB_FINDING, Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.fleet import JOB
from simulation.whatever_happens import WhateverHappens

_SHAPE = Shape(nodes=6, nodes_min=3, nodes_max=4, steps=40, domains=3)


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("seed", range(3))
def test_nodes_stay_in_use_on_which_the_storage_of_a_job_fails(
    seed: int, severity: Severity
) -> None:
    check = WhateverHappens()
    cluster, rng = SimulatedCluster(seed, _SHAPE, check), random.Random(seed)
    faults = Faults(cluster)
    for name in faults.names:
        cluster.time.after(rng.uniform(5, 40), partial(cluster.job_finding, name, severity))
        if rng.random() < 0.5:
            check.grounds.add(name)
            cluster.time.after(rng.uniform(10, 60), partial(cluster.kill_rank, name))
        cluster.time.after(rng.uniform(10, 60), partial(faults.restart_agent, name, 2.0))
    cluster.run(400)
    state = cluster.controller.core.state
    told = [one for node in state.nodes.values() for one in node.health.findings.values()]
    assert sum(one.finding.message == JOB_FINDING for one in told) == len(faults.names)
    job = state.job(JOB)
    assert job is not None
    assert job.state is JobState.ENDED
    assert job.ending.succeeded
