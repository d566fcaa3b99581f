"""Agents that answer pings and carry out no orders, or late: no job waits for one for ever."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from everstep_common.orders import RunCheck, StartGeneration, StopGeneration
from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.invariants import Invariants
from simulation.seeds import seeds
from simulation.waiting import Waits

STEPS = 40
WITH_SPARE = Shape(nodes=5, nodes_min=3, nodes_max=3, steps=STEPS)
WITHOUT_SPARE = Shape(nodes=3, nodes_min=3, nodes_max=3, steps=STEPS)
ALL_ORDERS = (StartGeneration, StopGeneration)
ORDERS = (*ALL_ORDERS, RunCheck)
FOR_EVER_S = 30 * 86_400.0
END_S = 1200.0
FAULTS_S, CURED_S = 200.0, 900.0


def _member(faults: Faults) -> str:
    job = faults.cluster.job
    assert job is not None
    return job.generation.members[1]


def _stop(faults: Faults, for_s: float) -> None:
    faults.ignore_orders(_member(faults), [StopGeneration], for_s)


def _holdings(faults: Faults, for_s: float) -> None:
    faults.mute_vault(_member(faults), for_s)


def _start(faults: Faults, for_s: float) -> None:
    faults.ignore_orders(_member(faults), [StartGeneration], for_s)


def _all(faults: Faults, for_s: float) -> None:
    name = _member(faults)
    faults.ignore_orders(name, ALL_ORDERS, for_s)
    faults.mute_vault(name, for_s)


def _ranks(faults: Faults, for_s: float) -> None:
    """Its ranks start and come no further, and nobody hears from its agent."""
    name = _member(faults)
    faults.hang_ranks(name, for_s)
    faults.ignore_after_start(name, for_s)


class Patience(Invariants):
    """Besides all else: no job waits for too long."""

    def __init__(self) -> None:
        super().__init__()
        self._waits = Waits()

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        self._waits(cluster)


FAULTS = {"stop": _stop, "holdings": _holdings, "start": _start, "all": _all, "ranks": _ranks}


def play(kind: str, shape: Shape, seed: int, for_s: float = FOR_EVER_S) -> SimulatedCluster:
    """Let a member's agent ignore something, kill another member's rank, and wait."""
    cluster = SimulatedCluster(seed, shape, Patience())
    faults = Faults(cluster)
    cluster.time.after(20, lambda: FAULTS[kind](faults, for_s))
    cluster.time.after(21, lambda: cluster.kill_rank(cluster.whole_members()[0]))
    cluster.run(END_S)
    return cluster


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize("kind", FAULTS)
def test_a_spare_takes_the_place_of_a_member_whose_agent_never_answers(
    kind: str, seed: int
) -> None:
    job = play(kind, WITH_SPARE, seed).job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize("kind", FAULTS)
def test_without_a_spare_the_job_goes_on_when_the_agent_answers(kind: str, seed: int) -> None:
    job = play(kind, WITHOUT_SPARE, seed, for_s=400).job
    assert job is not None
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded


def _shape(seed: int) -> Shape:
    storage = Storage("/shared", every_steps=1, keep=2) if seed % 4 == 0 else None
    domains = 3 if seed % 3 else 0
    least = 2 + seed % 2
    return Shape(
        nodes=6, nodes_min=least, nodes_max=3, steps=STEPS, storage=storage, domains=domains
    )


def _faults(faults: Faults, name: str, rng: random.Random) -> list[Callable[[], object]]:
    """Return what may happen to a node next; agents that do not obey come most often."""
    cluster, kinds = faults.cluster, rng.sample(ORDERS, rng.randrange(1, 4))
    return [
        partial(faults.ignore_orders, name, kinds, rng.choice([5, 40, 200, FOR_EVER_S])),
        partial(faults.ignore_orders, name, kinds, rng.choice([5, 40, 200, FOR_EVER_S])),
        partial(faults.delay_orders, name, kinds, rng.uniform(1, 150), 200),
        partial(faults.mute_vault, name, rng.choice([5, 90, 300])),
        partial(faults.hang_ranks, name, rng.choice([5, 90, 300])),
        partial(faults.pause_agent, name, rng.choice([1, 6, 14, 30, 60])),
        partial(faults.restart_agent, name, rng.uniform(1, 10)),
        partial(faults.stall_controller, rng.choice([2, 6, 20, 40])),
        partial(cluster.restart_controller, rng.uniform(0.2, 20)),
        partial(cluster.kill_rank, name),
        partial(cluster.kill_rank, name),
        partial(cluster.kill_node, name),
        partial(cluster.return_node, name),
        partial(cluster.end_launcher, name, by_user=False),
    ]


@pytest.mark.parametrize("seed", seeds(8, 30))
def test_agents_that_answer_late_or_not_at_all_hold_up_no_job_for_ever(seed: int) -> None:
    cluster = SimulatedCluster(seed, _shape(seed), Patience())
    faults, rng, at_s = Faults(cluster), random.Random(seed + 1), 8.0
    while at_s < FAULTS_S:
        cluster.time.after(at_s, rng.choice(_faults(faults, rng.choice(faults.names), rng)))
        at_s += rng.uniform(3, 20)
    # In the end all nodes are there and all agents are started again: these do what they are told.
    for name in faults.names:
        cluster.time.after(CURED_S, partial(cluster.return_node, name))
        cluster.time.after(CURED_S + 5, partial(faults.cure, name))
        cluster.time.after(CURED_S + 60, partial(cluster.operator, name, isolate=False))
    cluster.run(CURED_S + 2000)
    job = cluster.job
    assert job is not None
    if "cannot be restored" in job.reason:
        # All that had some part of the state were dead at once: nothing is made up.
        assert job.state is JobState.WAITING_STATE
        return
    assert job.state is JobState.ENDED, (job.state, job.reason)
    assert job.ending.succeeded, job.reason
