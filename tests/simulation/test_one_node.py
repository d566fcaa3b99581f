"""A job on one node, in virtual time: what its loss costs with a spare, and without one."""

from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.fleet import JOB

_KILLED_S = 60
_STEPS = 120
# The numbers between are left to the agent of the first, for restarts without a controller.
_SECOND = 2 + SHIPPED.autonomous_restarts_max


def _nothing(cluster: SimulatedCluster, event: events.Event) -> None:
    """Check nothing on the way."""


def _run(seed: int, nodes: int, faults: Callable[[SimulatedCluster], None]) -> SimulatedCluster:
    shape = Shape(nodes=nodes, nodes_min=1, nodes_max=1, steps=_STEPS)
    cluster = SimulatedCluster(seed, shape, _nothing)
    cluster.time.after(_KILLED_S, partial(faults, cluster))
    cluster.run(1500)
    return cluster


def _member(cluster: SimulatedCluster) -> str:
    assert cluster.job is not None
    return cluster.job.generation.members[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_loss_of_its_node_costs_a_step_at_most(seed: int) -> None:
    made = []

    def lose(cluster: SimulatedCluster) -> None:
        made.append(max(cluster.ranks.completed))
        cluster.kill_node(_member(cluster))

    cluster = _run(seed, 3, lose)
    job = cluster.job
    assert job is not None
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True)
    (incident,) = incidents_of_job(cluster.controller.core.state, job)
    assert incident.step_restored is not None
    assert made[0] - incident.step_restored <= 1
    assert job.generation.number == _SECOND


@pytest.mark.parametrize("seed", range(3))
def test_alone_in_its_fleet_a_node_that_is_cut_off_is_never_lost_and_trains_on(seed: int) -> None:
    def cut(cluster: SimulatedCluster) -> None:
        name = _member(cluster)
        cluster.cut_off(name)
        cluster.time.after(400, partial(cluster.return_node, name))

    job = _run(seed, 1, cut).job
    assert job is not None
    assert (job.state, job.ending.succeeded, job.generation.number) == (JobState.ENDED, True, 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_spare_that_came_too_late_waits_with_one_plan_for_the_node_that_has_the_state(
    seed: int,
) -> None:
    seen: list[tuple[int, JobState]] = []

    def cut(cluster: SimulatedCluster) -> None:
        def look() -> None:
            assert cluster.job is not None
            seen.append((cluster.job.generation.number, cluster.job.state))

        name = _member(cluster)
        for node in cluster.fleet.nodes.values():
            local = node.of(JOB)
            local.copies = [copy for copy in local.copies if copy.node == name]
            if node.name != name:
                cluster.vaults.report(node)
        cluster.cut_off(name)
        cluster.time.after(300, look)
        cluster.time.after(400, partial(cluster.return_node, name))

    job = _run(seed, 2, cut).job
    assert seen == [(_SECOND, JobState.WAITING_STATE)]
    assert job is not None
    ended = job.state, job.ending.succeeded, job.generation.number
    assert ended == (JobState.ENDED, True, _SECOND)
