"""A job that waits for nodes loses a second one: what one node only had, another has fetched."""

from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults

_SEEDS = range(30)
_LOST_S, _SECOND_S, _BACK_S = 30.0, 60.0, 90.0


class _Watch:
    """Notes the states of the job, and the newest step that it was given back."""

    def __init__(self) -> None:
        self.states: set[JobState] = set()
        self.restored: list[int] = []

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        job = cluster.job
        if job is not None:
            self.states.add(job.state)
            if isinstance(event, events.RecoveryStepChosen) and event.step is not None:
                self.restored.append(event.step)


@pytest.mark.parametrize("nodes", [3, 4])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_second_node_that_is_lost_while_the_job_waits_for_nodes_costs_no_step(
    seed: int, nodes: int
) -> None:
    watch = _Watch()
    shape = Shape(nodes=nodes, nodes_min=nodes, nodes_max=nodes, steps=120)
    cluster = SimulatedCluster(seed, shape, watch)
    first, second = (f"n{(seed + one) % nodes}" for one in (0, 1 + seed // nodes % (nodes - 1)))
    cluster.time.after(_LOST_S, partial(cluster.kill_node, first))
    cluster.time.after(_SECOND_S, partial(cluster.kill_node, second))
    for name, after_s in ((first, 0.0), (second, 5.0)):
        cluster.time.after(_BACK_S + after_s, partial(cluster.return_node, name))
    cluster.run(1000)
    job = cluster.job
    assert job is not None
    assert JobState.WAITING_CAPACITY in watch.states
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True)
    assert max(watch.restored) > 10


@pytest.mark.parametrize("seed", _SEEDS)
def test_nothing_is_begun_from_what_an_agent_held_before_it_lost_its_memory(seed: int) -> None:
    watch = _Watch()
    cluster = SimulatedCluster(seed, Shape(nodes=2, nodes_min=1, nodes_max=1, steps=120), watch)
    member, keeper = "n0", "n1"

    def lose_both() -> None:
        """The job's node loses power, and the agent that keeps its replicas its memory."""
        assert cluster.job is not None
        nonlocal member, keeper
        (member,) = cluster.job.generation.members
        (keeper,) = {"n0", "n1"} - {member}
        Faults(cluster).restart_agent(keeper, 60.0, keeps_memory=False)
        cluster.kill_node(member)
        cluster.time.after(20.0, partial(cluster.return_node, member))

    cluster.time.after(_LOST_S, lose_both)
    cluster.run(200)
    job = cluster.job
    assert job is not None
    assert (job.state, watch.restored) == (JobState.WAITING_STATE, [])
