"""Random schedules of faults with a scheduler that breaks and that others use: the seed tells."""

import random
from functools import partial

import pytest

from everstep_controller.core import actions
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState
from everstep_controller.core.nodes.isolation_differences import wanted_isolation
from everstep_sim.cluster import Shape, SimulatedCluster
from simulation.invariants import Invariants
from simulation.test_schedules import END_S, FAULTS_S, STEPS, schedule


def run(seed: int) -> SimulatedCluster:
    """Run a seeded schedule to the end of its job, and until the scheduler has settled."""
    shape = Shape(crash_chance=0.002, steps=STEPS, scheduler=True)
    cluster = SimulatedCluster(seed, shape, Invariants())
    rng = random.Random(seed + 1)
    schedule(cluster, rng)
    at_s = 5.0
    while at_s < FAULTS_S:
        _interfere(cluster, rng, at_s)
        at_s += rng.uniform(10, 40)
    for name in cluster.fleet.nodes:
        cluster.time.after(FAULTS_S + 10, partial(cluster.scheduler.resume, name))
    cluster.time.after(FAULTS_S + 10, partial(_set_broken, cluster, False))
    cluster.run(END_S)
    cluster.time.run(cluster.time.now_ns / 1e9 + 150, lambda: False)
    return cluster


def _interfere(cluster: SimulatedCluster, rng: random.Random, at_s: float) -> None:
    if rng.random() < 0.5:
        name = rng.choice(list(cluster.fleet.nodes))
        cluster.time.after(at_s, partial(cluster.scheduler.drain, name))
        cluster.time.after(at_s + rng.uniform(5, 60), partial(cluster.scheduler.resume, name))
    else:
        cluster.time.after(at_s, partial(_set_broken, cluster, True))
        cluster.time.after(at_s + rng.uniform(5, 40), partial(_set_broken, cluster, False))


def _set_broken(cluster: SimulatedCluster, broken: bool) -> None:
    cluster.scheduler.broken = broken


@pytest.mark.parametrize("seed", range(12))
def test_jobs_end_well_and_the_scheduler_comes_to_what_the_claims_say(seed: int) -> None:
    cluster = run(seed)
    job = cluster.job
    assert job is not None
    assert job.state is JobState.ENDED or "cannot be restored" in job.reason, job.reason
    for node in cluster.controller.core.state.nodes.values():
        hold = cluster.scheduler.holds.get(node.name)
        assert node.claim_of("scheduler") is None
        assert (hold is not None) == wanted_isolation(node).withheld, node
    assert not cluster.controller.core.state.drivers["scheduler"].failures


@pytest.mark.parametrize("seed", range(0, 12, 6))
def test_every_call_of_a_driver_is_due_again_after_a_restart_at_any_prefix(seed: int) -> None:
    core, calls = Core(), 0
    for event, now_ns in run(seed).controller.journal:
        called_for = core.handle(event, now_ns)
        due = {action.id for action in core.due(now_ns)}
        for action in called_for:
            if isinstance(action, actions.ApplyIsolation | actions.ReadIsolation):
                calls += 1
                assert core.state.halted or action.id in due
    assert calls > 1


def test_the_schedules_do_isolate_and_interfere() -> None:
    clusters = [run(seed) for seed in range(3)]
    assert sum(cluster.scheduler.applied for cluster in clusters) > 5
    owners = {
        result.wanted.owners
        for cluster in clusters
        for event, _ in cluster.controller.journal
        for result in getattr(event, "results", ())
    }
    assert ("automation",) in owners
