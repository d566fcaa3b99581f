"""Spares that fail their checks now and then, in virtual time: no job is given to one."""

from dataclasses import replace
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants

# What a spare shows changes within seconds here, and not within hours.
_OFTEN = replace(SHIPPED, spare_check_interval_ns=3 * SECOND)


class _Watch:
    """Sees whom each plan took, and what was known of them."""

    def __init__(self) -> None:
        self.invariants = Invariants()
        self.members: set[str] = set()
        self.failed = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self.invariants(cluster, event)
        job, nodes = cluster.job, cluster.controller.core.state.nodes
        bad = {name for name, node in nodes.items() if node.spare_check.failed}
        self.failed += bool(bad)
        now = set(job.generation.members) if job is not None else set[str]()
        assert not (now - self.members) & bad
        self.members = now


def _blind(cluster: SimulatedCluster, count: int) -> None:
    """Let so many nodes that wait be unable to read their probes, and all others read them."""
    assert cluster.job is not None
    waiting = [name for name in cluster.fleet.nodes if name not in cluster.job.generation.members]
    for name, node in cluster.fleet.nodes.items():
        node.blind = name in waiting[:count]


def _kill_member(cluster: SimulatedCluster, index: int) -> None:
    assert cluster.job is not None
    if cluster.job.state is JobState.RUNNING:
        cluster.kill_node(cluster.job.generation.members[index])


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_takes_a_spare_that_failed_and_the_job_ends_well(seed: int) -> None:
    watch = _Watch()
    crash_chance = 0.02 if seed % 2 else 0.0
    shape = Shape(nodes=7, steps=80, crash_chance=crash_chance, settings=_OFTEN)
    cluster = SimulatedCluster(seed, shape, watch)
    for at_s, count in ((12, 2), (30, 3), (45, 1), (60, 0)):
        cluster.time.after(at_s, partial(_blind, cluster, count))
    for at_s, index in ((25, 1), (52, 0)):
        cluster.time.after(at_s, partial(_kill_member, cluster, index))
    cluster.run(1000)
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True)
    assert watch.failed
