"""Two faults, the second in a given state of the recovery from the first, with every plan."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import pytest

from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from simulation.invariants import Invariants

STEPS = 30
# Two nodes can hold all copies of a part in memory.
_STORED = Shape(steps=STEPS, storage=Storage("/shared", every_steps=1, keep=2))
PLANS = {
    "spare": replace(_STORED, nodes=5, nodes_min=3, nodes_max=3),
    "re-form": replace(_STORED, nodes=4, nodes_min=2, nodes_max=4),
    "wait": replace(_STORED, nodes=3, nodes_min=3, nodes_max=3),
}
AWAY_S = 45.0


def _members(cluster: SimulatedCluster) -> list[str]:
    job = cluster.job
    return (
        job.generation.members
        if job is not None and job.generation.members
        else list(cluster.fleet.nodes)
    )


def _back(cluster: SimulatedCluster, name: str) -> None:
    cluster.time.after(AWAY_S, partial(cluster.return_node, name))


def _process(cluster: SimulatedCluster, name: str, _: str) -> None:
    cluster.kill_rank(name)


def _launcher(cluster: SimulatedCluster, name: str, _: str) -> None:
    if cluster.fleet.nodes[name].of(JOB).launcher:
        cluster.end_launcher(name, by_user=False)
        _back(cluster, name)


def _node(cluster: SimulatedCluster, name: str, _: str) -> None:
    cluster.kill_node(name)
    _back(cluster, name)


def _cut(cluster: SimulatedCluster, name: str, _: str) -> None:
    cluster.cut_off(name)
    _back(cluster, name)


def _agent(cluster: SimulatedCluster, name: str, _: str) -> None:
    """Lose an agent and its memory; launcher and ranks live on."""
    cluster.fleet.kill_agent(name)
    _back(cluster, name)


def _agent_again(cluster: SimulatedCluster, name: str, _: str) -> None:
    """Lose an agent for less time than it takes to be missed."""
    cluster.fleet.kill_agent(name)
    cluster.time.after(1.0, partial(cluster.return_node, name))


def _two_nodes(cluster: SimulatedCluster, name: str, holder: str) -> None:
    """Lose a node together with the one that holds its replica."""
    for lost in dict.fromkeys((name, holder)):  # in the same order in every run
        _node(cluster, lost, "")


def _controller(cluster: SimulatedCluster, name: str, holder: str) -> None:
    del name, holder
    cluster.restart_controller(3.0)


FAULTS: dict[str, Callable[[SimulatedCluster, str, str], None]] = {
    "process": _process,
    "launcher": _launcher,
    "node": _node,
    "cut": _cut,
    "agent": _agent,
    "agent started again": _agent_again,
    "two nodes": _two_nodes,
    "controller": _controller,
}
# Running: before anybody knows of the first fault.
STAGES = (
    JobState.RUNNING,
    JobState.STOPPING,
    JobState.REPLANNING,
    JobState.WAITING_CAPACITY,
    JobState.STARTING,
    JobState.RESTORING,
    JobState.WARMING,
)


@dataclass
class _Story:
    """Plays the two faults, and looks at what the controller orders in between."""

    first: str
    second: str
    stage: JobState
    rng: random.Random
    invariants: Invariants = field(default_factory=Invariants)
    begun: bool = False
    met: bool = False
    # Those of the job since the first fault.
    states: set[JobState] = field(default_factory=set)
    # All ranks have ended well.
    done: bool = False
    newest: int = 0
    rendezvous: dict[int, tuple[str, int]] = field(default_factory=dict)

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self.invariants(cluster, event)
        job = cluster.job
        if job is None:
            return
        self.done, self.newest = (
            self.done or job.ending.done,
            max(self.newest, job.generation.number),
        )
        if job.state is JobState.STARTING:
            self.rendezvous[job.generation.number] = (
                job.generation.master_address,
                job.generation.master_port,
            )
        if self.begun:
            self.states.add(job.state)
        if self.begun and not self.met and job.state is self.stage:
            self.met = True
            cluster.time.after(0, lambda: self._strike(cluster, self.second))

    def begin(self, cluster: SimulatedCluster) -> None:
        """Let the first fault happen, once a step of the job is in storage."""
        job, stored = cluster.job, cluster.vaults.folder.latest
        if job is None or job.state is not JobState.RUNNING or stored is None:
            cluster.time.after(0.1, lambda: self.begin(cluster))
            return
        self._strike(cluster, self.first)
        self.begun = True
        if self.stage is JobState.RUNNING:
            self.met = True
            self._strike(cluster, self.second)

    def _strike(self, cluster: SimulatedCluster, fault: str) -> None:
        members = _members(cluster)
        place = self.rng.randrange(len(members))
        FAULTS[fault](cluster, members[place], members[(place + 1) % len(members)])


def _play(story: _Story, seed: int, shape: Shape) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, shape, story)
    cluster.time.after(1, lambda: story.begin(cluster))
    cluster.run(1800)
    return cluster


_SOME = (("launcher", "node", "controller"), range(1))
_ALL = (tuple(FAULTS), range(1, 20))


@pytest.mark.parametrize(
    ("seconds", "seeds"), [_SOME, pytest.param(*_ALL, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.value)
@pytest.mark.parametrize(("plan", "first"), list(product(PLANS, FAULTS)))
def test_a_second_fault_at_any_point_of_a_recovery_costs_no_step(
    plan: str, first: str, stage: JobState, seconds: tuple[str, ...], seeds: range
) -> None:
    for second, seed in product(seconds, seeds):
        story = _Story(first, second, stage, random.Random(seed))
        cluster = _play(story, seed, PLANS[plan])
        job, which = cluster.job, (second, seed)
        assert job is not None
        assert story.done, (which, job.state, job.reason)
        # What came back while it was ending may have begun the next job of its name.
        assert job.state in (JobState.ENDED, JobState.FORMING), (which, job.state, job.reason)
        assert set(cluster.ranks.completed) == set(range(STEPS)), which
        # After an agent that is not missed ranks go on, as after the controller.
        if story.met and not {first, second} & {"agent", "agent started again"}:
            assert (story.newest > 1) == ({first, second} != {"controller"}), which
        # What is left of an older rendezvous is never found by a newer generation.
        assert len(set(story.rendezvous.values())) == len(story.rendezvous), which


def test_every_state_is_met_by_some_fault() -> None:
    met: set[JobState] = set()
    for plan, first in product(PLANS, FAULTS):
        story = _Story(first, "process", JobState.ENDED, random.Random(0))
        _play(story, 0, PLANS[plan])
        met |= story.states
    assert met >= set(STAGES)
