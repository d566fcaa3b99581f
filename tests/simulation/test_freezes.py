"""Freezes from outside, judged by the judge that ships, while a job is moved or grows."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import AUTOMATION, NodeState
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.fleet import JOB
from everstep_sim.timeline import SECOND
from simulation.seeds import seeds
from simulation.whatever_happens import WhateverHappens

STEPS = 120
_SHAPE = Shape(nodes=6, nodes_min=3, nodes_max=4, steps=STEPS, domains=3, restarts_max=3)
_PATIENCE_S = SHIPPED.hang_patience_ns / SECOND

Move = Callable[[Faults], object]


def _member(faults: Faults, place: int = 1) -> str:
    job = faults.cluster.job
    members = job.generation.members if job is not None else ()
    return members[place % len(members)] if members else "n0"


def _restart(faults: Faults) -> None:
    faults.cluster.fleet.submit(events.RestartOrdered(JOB, "ops", "new flags"))


def _drain(faults: Faults) -> None:
    name = _member(faults)
    faults.cluster.fleet.submit(events.OperatorDrained(name, "ops", "a disk is changed"))
    faults.later(60, partial(faults.cluster.operator, name, isolate=False))


def _swap(faults: Faults) -> None:
    """Have a rank die on a node again and again, so that a spare takes its place."""
    faults.cluster.kill_rank(_member(faults))


def _grow(faults: Faults) -> None:
    """Have the job go on without one of its nodes and without a spare, and all come back."""
    job = faults.cluster.job
    members = job.generation.members if job is not None else ()
    lost = [name for name in faults.names if name not in members] + list(members[:1])
    faults.lose_power(lost)
    for name in lost:
        faults.later(40, partial(faults.give_power, name))


def _maintain(faults: Faults) -> None:
    now_ns = faults.cluster.controller.now_ns
    order = events.MaintenanceOrdered(
        nodes=(_member(faults),),
        begin_ns=now_ns + 20 * SECOND,
        end_ns=now_ns + 110 * SECOND,
        operator="ops",
        reason="firmware",
    )
    faults.cluster.fleet.submit(order)


MOVES: dict[str, Move] = {
    "restart": _restart,
    "drain": _drain,
    "swap": _swap,
    "growth": _grow,
    "maintenance": _maintain,
}
_LASTS_S = (1.0, 4.0, 20.0, 60.0, 200.0, 500.0)


@dataclass
class _Story:
    """A move, and hands that freeze ranks, agents and machines before, during and after it."""

    seed: int
    move: str
    check: WhateverHappens = field(default_factory=WhateverHappens)
    claimed: dict[str, str] = field(default_factory=dict)
    died: set[str] = field(default_factory=set)

    def play(self) -> SimulatedCluster:
        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            self.check(cluster, event)
            for node in cluster.controller.core.state.nodes.values():
                claim = node.claim_of(AUTOMATION)
                if claim is not None and not claim.dead and node.state is not NodeState.LOST:
                    self.claimed.setdefault(node.name, claim.reason)

        cluster = SimulatedCluster(self.seed, _SHAPE, check)
        faults, rng = Faults(cluster), random.Random(self.seed)
        move_s = rng.uniform(20, 50)
        faults.later(move_s, partial(MOVES[self.move], faults))
        if self.move == "swap":
            self.check.grounds.update(faults.names)
        for _ in range(rng.randint(2, 6)):
            faults.later(move_s + rng.uniform(-15, 90), partial(self._freeze, faults, rng))
        cluster.run(8000)
        return cluster

    def _freeze(self, faults: Faults, rng: random.Random) -> None:
        name = _member(faults, rng.randrange(4)) if rng.random() < 0.8 else rng.choice(faults.names)
        kind = rng.randrange(4)
        if kind in (0, 3):
            faults.stop_ranks(name, rng.choice(_LASTS_S))
        elif kind == 1:
            faults.pause_agent(name, rng.choice(_LASTS_S))
        else:
            faults.freeze_machine(name, min(20.0, rng.choice(_LASTS_S)))


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("seed", seeds(3, 80))
def test_no_freeze_over_a_move_ends_a_job_or_takes_a_node(seed: int, move: str) -> None:
    story = _Story(seed, move)
    cluster = story.play()
    jobs = [job for job in cluster.controller.core.state.jobs.values() if job.name == JOB]
    states = [(job.state, job.reason) for job in jobs]
    assert any(job.state is JobState.ENDED and job.ending.succeeded for job in jobs), states
    assert not any(job.ending.failed for job in jobs), states
    if move != "swap":
        assert not story.claimed


def test_freezes_are_judged_by_looks() -> None:
    judged = restarts = 0
    for seed in range(6):
        cluster = _Story(seed, "restart").play()
        jobs = cluster.controller.core.state.jobs.values()
        judged += cluster.looks.judged
        restarts += sum(len(job.recovery.hangs) for job in jobs)
    assert judged >= 3
    assert restarts


# Its ranks have their state; the first generation has made steps when the hand begins.
_BEGUN = (JobState.WARMING, JobState.RUNNING)


class _Hand:
    """A hand that stops a rank of each generation before it makes a step, some times."""

    def __init__(self, cluster: SimulatedCluster, times: int) -> None:
        self._cluster = cluster
        self._faults = Faults(cluster)
        self._left = times
        self._generation = 0
        self.stopped_s: list[float] = []
        cluster.time.after(15, self._look)

    def _look(self) -> None:
        job = self._cluster.job
        new = job is not None and job.generation.number > self._generation
        if job is not None and new and self._left and job.state in _BEGUN:
            self._generation, self._left = job.generation.number, self._left - 1
            self.stopped_s.append(self._cluster.time.now_ns / SECOND)
            self._faults.stop_ranks(_member(self._faults), 1e6)
        self._cluster.time.after(0.05, self._look)


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_rank_that_is_stopped_at_one_step_again_and_again_is_waited_for_ever_longer(
    seed: int,
) -> None:
    cluster = SimulatedCluster(seed, _SHAPE, WhateverHappens())
    hand = _Hand(cluster, times=6)
    cluster.run(20_000)
    job = cluster.job
    assert job is None or job.ending.succeeded, job.reason
    waits = [after - before for before, after in pairwise(hand.stopped_s)]
    assert len(waits) == 5, waits
    assert waits[0] < _PATIENCE_S < 2 * _PATIENCE_S < waits[-1], waits
