"""Odd numbers of nodes: whichever is lost, and when, the step that was recoverable is restored."""

import random
from dataclasses import replace
from functools import partial

import pytest

from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from simulation.test_vault_schedules import END_S, Truth

_SHAPE = Shape(nodes_min=3, steps=120)


@pytest.mark.parametrize(
    ("count", "index"), [(count, index) for count in (3, 5, 7) for index in range(count)]
)
def test_whichever_node_is_lost_no_recoverable_step_is(count: int, index: int) -> None:
    shape = replace(_SHAPE, nodes=count + 1, nodes_min=count, nodes_max=count)
    truth = Truth()
    cluster = SimulatedCluster(index, shape, truth)
    told: list[int] = []

    def lose() -> None:
        job = cluster.job
        assert job is not None
        told.append(cluster.vaults.told[JOB, job.generation.number])
        name = job.generation.members[index]
        cluster.kill_node(name)
        cluster.time.after(20, partial(cluster.return_node, name))

    cluster.time.after(random.Random(index).uniform(20, 50), lose)
    cluster.run(END_S)
    assert truth.looks > 10
    assert cluster.job is not None
    assert cluster.job.ending.succeeded, cluster.job.reason
    ((_, restored),) = truth.restored
    assert restored >= told[0]
