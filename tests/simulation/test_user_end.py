"""Users who end a job with a grace, in virtual time: what is saved then, and that it ends."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from everstep_common.endings import is_by_user
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.timeline import SECOND
from simulation.seeds import seeds
from simulation.test_vault_schedules import PLAIN, SHAPES, run

Fault = Callable[[SimulatedCluster, str, float], object]
CALM = replace(PLAIN, crash_chance=0.0)


class Cancelled:
    """A job that is cancelled at a random time; notes what it had made by then."""

    def __init__(self, grace_s: float, fault: Fault | None = None) -> None:
        self._grace_s = grace_s
        self._fault = fault
        self.completed = -1
        self.generation = 0
        self.asked_s = 0.0

    def __call__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self.asked_s = rng.uniform(20, 60)
        cluster.time.after(self.asked_s, partial(self._cancel, cluster))
        if self._fault is not None:
            name, away_s = rng.choice([*cluster.fleet.nodes]), rng.uniform(0.5, 20)
            at_s = self.asked_s + rng.uniform(-2, 2)
            cluster.time.after(at_s, partial(self._fault, cluster, name, away_s))

    def _cancel(self, cluster: SimulatedCluster) -> None:
        self.completed = max(cluster.ranks.completed, default=-1)
        assert cluster.job is not None
        self.generation = cluster.job.generation.number
        cluster.cancel(self._grace_s)

    def lasted_s(self, cluster: SimulatedCluster) -> float:
        """Return how long the job, at whose end the simulation stops, took to end."""
        return cluster.time.now_ns / SECOND - self.asked_s


def by_its_user(cluster: SimulatedCluster) -> JobRecord:
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, False), job.reason
    assert is_by_user(job.reason), job.reason
    return job


@pytest.mark.parametrize("seed", seeds(6, 40))
@pytest.mark.parametrize("shape", ["own parts", "3 to 5 nodes"])
def test_a_job_that_is_cancelled_saves_a_step_that_it_had_not_made_and_ends_in_time(
    seed: int, shape: str
) -> None:
    cancelled = Cancelled(grace_s=30)
    cluster = run(seed, replace(SHAPES[shape], crash_chance=0.0), cancelled)
    job = by_its_user(cluster)
    assert job.generation.number == cancelled.generation
    assert job.lineage.recoverable_step is not None
    assert job.lineage.recoverable_step > cancelled.completed
    assert cancelled.lasted_s(cluster) < 30
    assert f"after step {job.lineage.recoverable_step}, which stays in memory of" in job.reason


@pytest.mark.parametrize("seed", seeds(4, 20))
@pytest.mark.parametrize("grace_s", [0.0, 1.0, 1.5])
def test_too_short_a_grace_for_a_step_keeps_what_is_committed(seed: int, grace_s: float) -> None:
    cancelled = Cancelled(grace_s)
    job = by_its_user(run(seed, CALM, cancelled))
    assert job.lineage.recoverable_step is not None
    # The word that a step is committed may be a moment behind, and the next step is made meanwhile.
    assert job.lineage.recoverable_step >= cancelled.completed - 2


def kill_rank(cluster: SimulatedCluster, name: str, _away_s: float) -> None:
    cluster.kill_rank(name)


def lose_power(cluster: SimulatedCluster, name: str, away_s: float) -> None:
    cluster.kill_node(name)
    cluster.time.after(away_s, partial(cluster.return_node, name))


def cut_off(cluster: SimulatedCluster, name: str, away_s: float) -> None:
    cluster.cut_off(name)
    cluster.time.after(away_s, partial(cluster.return_node, name))


def lose_controller(cluster: SimulatedCluster, _name: str, away_s: float) -> None:
    cluster.restart_controller(away_s)


@pytest.mark.parametrize("seed", seeds(3, 30))
@pytest.mark.parametrize("fault", [kill_rank, lose_power, cut_off, lose_controller])
def test_whatever_fails_meanwhile_it_ends_and_nothing_is_lost_that_was_saved(
    seed: int, fault: Fault
) -> None:
    cancelled = Cancelled(30, fault)
    job = by_its_user(run(seed, replace(CALM, steps=400), cancelled))
    assert job.lineage.recoverable_step is not None


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_with_storage_its_last_step_is_there(seed: int) -> None:
    def plan(cluster: SimulatedCluster, rng: random.Random) -> None:
        cluster.vaults.write_fault_chance = 0.0
        cancelled(cluster, rng)

    cancelled = Cancelled(60)
    cluster = run(seed, replace(SHAPES["storage"], crash_chance=0.0), plan)
    job, latest = by_its_user(cluster), cluster.vaults.folder.latest
    assert latest is not None
    assert latest.step == job.lineage.recoverable_step
    assert latest.step > cancelled.completed
    assert job.reason.endswith(f"after step {latest.step}, which is in storage")
