"""Random schedules with two schedulers, each of the nodes of a group, and with paused drivers."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core.model.groups import Group
from everstep_controller.core.nodes.driver_pause import DriversPaused, DriversResumed
from everstep_controller.core.nodes.isolation_differences import wanted_isolation
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.scheduler import DRIVER, PODS, SimulatedScheduler
from simulation.invariants import Invariants
from simulation.test_schedules import END_S, FAULTS_S, STEPS, schedule

_BATCH, _PODS = ("n0", "n1", "n2"), ("n3", "n4")
_GROUPS = {
    "batch": Group(nodes=_BATCH, drivers=(DRIVER,)),
    "pods": Group(nodes=_PODS, drivers=(PODS,), cordon=True),
}
# Later n2 is told to the other one.
_MOVED = {
    "batch": Group(nodes=_BATCH[:2], drivers=(DRIVER,)),
    "pods": Group(nodes=("n2", *_PODS), drivers=(PODS,), cordon=True),
}


def run(seed: int) -> SimulatedCluster:
    """Run a seeded schedule to the end of its job, and until both schedulers have settled."""
    shape = Shape(crash_chance=0.002, steps=STEPS, scheduler=True, pods=True, groups=_GROUPS)
    cluster = SimulatedCluster(seed, shape, Invariants())
    rng = random.Random(seed + 1)
    schedule(cluster, rng)
    for at_s, do in _disorder(cluster, rng):
        cluster.time.after(at_s, do)
    for scheduler in (cluster.scheduler, cluster.pods):
        for name in cluster.fleet.nodes:
            cluster.time.after(FAULTS_S + 10, partial(scheduler.resume, name))
    cluster.time.after(FAULTS_S + 10, partial(_resume_drivers, cluster))
    cluster.run(END_S)
    # A start with a crash in it may have lost the operator's word, as it would in truth.
    _resume_drivers(cluster)
    cluster.time.run(cluster.time.now_ns / 1e9 + 150, lambda: False)
    return cluster


def _disorder(
    cluster: SimulatedCluster, rng: random.Random
) -> list[tuple[float, Callable[[], object]]]:
    """Return what others and operators do, and when."""
    told: list[tuple[float, Callable[[], object]]] = []
    at_s = 5.0
    while at_s < FAULTS_S:
        scheduler, name = _one(cluster, rng), rng.choice(list(cluster.fleet.nodes))
        word = rng.choice(("drain", "pause", "groups"))
        if word == "drain":
            told.append((at_s, partial(scheduler.drain, name)))
            told.append((at_s + rng.uniform(5, 60), partial(scheduler.resume, name)))
        elif word == "pause":
            told.append((at_s, partial(_pause_drivers, cluster)))
            told.append((at_s + rng.uniform(5, 40), partial(_resume_drivers, cluster)))
        else:
            told.append((at_s, partial(_set_groups, cluster, rng.choice((_GROUPS, _MOVED)))))
        at_s += rng.uniform(10, 40)
    return told


def _one(cluster: SimulatedCluster, rng: random.Random) -> SimulatedScheduler:
    return rng.choice((cluster.scheduler, cluster.pods))


def _pause_drivers(cluster: SimulatedCluster) -> None:
    cluster.controller.post(DriversPaused("ops", "drill"))


def _resume_drivers(cluster: SimulatedCluster) -> None:
    cluster.controller.post(DriversResumed("ops"))


def _set_groups(cluster: SimulatedCluster, groups: dict[str, Group]) -> None:
    """Have the next start of the controller read other groups."""
    cluster.controller.groups = groups


@pytest.mark.parametrize("seed", range(8))
def test_each_scheduler_comes_to_what_the_claims_on_its_nodes_say_and_has_no_others(
    seed: int,
) -> None:
    cluster = run(seed)
    state = cluster.controller.core.state
    assert not state.drivers_paused
    for name, node in state.nodes.items():
        own = DRIVER if "batch" in state.index.groups_of(name) else PODS
        for scheduler in (cluster.scheduler, cluster.pods):
            wanted = wanted_isolation(node).withheld and scheduler.driver == own
            assert (name in scheduler.holds) == wanted, (name, scheduler.driver)
    assert not any(record.failures for record in state.drivers.values())


def test_the_schedules_do_use_both_schedulers_and_pause_them() -> None:
    clusters = [run(seed) for seed in range(3)]
    assert all(sum(len(one.asked) for one in (c.scheduler, c.pods)) for c in clusters)
    journaled = [event for c in clusters for event, _ in c.controller.journal]
    assert any(isinstance(event, DriversPaused) for event in journaled)
