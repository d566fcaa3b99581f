"""A spare that fetches at suspicion, in virtual time: ready when the member is judged lost."""

from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.snapshots import StepKey
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB

_S = 40


class _Watch:
    """Notes what the spare held when the plan for its place was made."""

    def __init__(self) -> None:
        self.held: list[StepKey] = []
        self.restored: StepKey | None = None

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        job = cluster.job
        if (
            job is None
            or not isinstance(event, events.RecoveryStepChosen)
            or job.generation.number != 2
        ):
            return
        self.restored = job.lineage.restored
        spare = next(
            name
            for name in job.generation.members
            if job.generation.members.index(name) == _place(cluster)
        )
        held = cluster.fleet.nodes[spare].of(JOB).copies
        rank = _place(cluster)
        self.held = [(one.generation, one.step) for one in held if one.rank == rank]


def _place(cluster: SimulatedCluster) -> int:
    return cluster.ranks.generations[1].members.index("n1")


# In these schedules the collectives of the others fail by their deadline. Where they fail at once
# the plan waits for no verdict, so there is nothing to fetch ahead of.
@pytest.mark.parametrize("seed", [2, 5, 7, 10])
def test_what_a_spare_fetched_is_what_the_plan_restores(seed: int) -> None:
    watch = _Watch()
    cluster = SimulatedCluster(seed, Shape(steps=80), watch)
    # Transfers end before the verdict does.
    cluster.vaults.fetch_s = 0.1
    cluster.time.after(_S, partial(cluster.kill_node, "n1"))
    cluster.run(1000)
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True)
    assert watch.restored in watch.held


@pytest.mark.parametrize("seed", range(6))
def test_a_member_that_comes_back_at_once_costs_nothing_but_the_transfer(seed: int) -> None:
    cluster = SimulatedCluster(seed, Shape(steps=80), lambda *_: None)
    for at_s in range(20, 60, 5):
        cluster.time.after(at_s, partial(cluster.cut_off, "n1"))
        cluster.time.after(at_s + 0.3, partial(cluster.return_node, "n1"))
    cluster.run(1000)
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True)
    # What was fetched for nothing is freed like all else: a ring holds two copies of few steps.
    for node in cluster.fleet.nodes.values():
        assert len(node.of(JOB).copies) <= 12
