"""Messages that are late, doubled and replayed, as one stream after another can make them."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.seeds import seeds
from simulation.whatever_happens import WhateverHappens

STEPS = 60
FAULTS_S = 90.0
END_S = 600.0
# Two racks or none; a spare or none; a controller that is killed between journal and action.
_SHAPES = (
    Shape(nodes=6, nodes_min=3, nodes_max=4, steps=STEPS, domains=3),
    Shape(nodes=5, nodes_min=3, nodes_max=3, steps=STEPS, crash_chance=0.002),
    Shape(nodes=7, nodes_min=2, nodes_max=3, steps=STEPS, domains=3, jobs=2, shared=1, devices=1),
    Shape(nodes=2, nodes_min=1, nodes_max=1, steps=STEPS),
)

Fault = Callable[[Faults, str, random.Random], object]

_MESSAGES: dict[str, Fault] = {
    "all late": lambda f, name, rng: f.delay_stream(name, rng.uniform(0.1, 4), rng.uniform(1, 40)),
    "one late": lambda f, name, rng: f.delay_message(name, rng.uniform(0.1, 8)),
    "orders late": lambda f, name, rng: f.delay_orders_on_stream(name, rng.uniform(0.1, 8)),
    "doubled": lambda f, name, rng: f.double_records(name, rng.randint(1, 30)),
    "replayed by an agent": lambda f, name, rng: f.replay_outbox(name, rng.uniform(0.2, 4)),
    "replayed to a controller": lambda f, _, rng: _replay_all(f, rng),
}
# What they are about: ranks that die, agents and controllers that are restarted, and a node.
_BESIDE: dict[str, Fault] = {
    "rank": lambda f, name, _: f.cluster.kill_rank(name),
    "agent": lambda f, name, rng: f.restart_agent(name, rng.uniform(1, 6)),
    "controller": lambda f, _, rng: f.cluster.restart_controller(rng.uniform(0.2, 20)),
    "stream": lambda f, name, _: f.flap_stream(name, 1, 2),
    "power": lambda f, name, rng: _power(f, name, rng.uniform(5, 40)),
}


def _replay_all(faults: Faults, rng: random.Random) -> None:
    """Restart the controller; agents whose disks are behind tell it all that they have again."""
    faults.cluster.restart_controller(rng.uniform(0.2, 5))
    for name in faults.names:
        faults.forget_acknowledgements(name)


def _power(faults: Faults, name: str, away_s: float) -> None:
    faults.lose_power([name])
    faults.later(away_s, partial(faults.give_power, name))


def play(seed: int, shape: Shape) -> tuple[SimulatedCluster, Counter[str]]:
    """Play one schedule, in which every other fault is one of messages."""
    check = WhateverHappens()
    cluster = SimulatedCluster(seed, shape, check)
    faults, rng, at_s = Faults(cluster), random.Random(seed + 1), 8.0
    told = Counter[str]()
    while at_s < FAULTS_S:
        known = rng.choice((_MESSAGES, _BESIDE))
        kind, name = rng.choice(list(known)), rng.choice(faults.names)
        told[kind] += 1
        if kind == "rank":
            check.grounds.add(name)
        cluster.time.after(at_s, partial(known[kind], faults, name, rng))
        at_s += rng.uniform(1, 12)
    for name in faults.names:
        cluster.time.after(FAULTS_S + 60, partial(cluster.return_node, name))
        cluster.time.after(FAULTS_S + 70, partial(cluster.operator, name, isolate=False))
    cluster.run(END_S)
    return cluster, told


@pytest.mark.parametrize("shape", range(len(_SHAPES)))
@pytest.mark.parametrize("seed", seeds(4, 150))
def test_messages_that_come_late_twice_or_again_change_nothing(seed: int, shape: int) -> None:
    cluster, _ = play(seed, _SHAPES[shape])
    _assert_each_record_is_journaled_once(cluster)
    for name in cluster.shape.names:
        _assert_ended_well(cluster, name)


def _assert_each_record_is_journaled_once(cluster: SimulatedCluster) -> None:
    taken: dict[str, int] = {}
    for event, _ in cluster.controller.journal:
        if isinstance(event, events.Reported):
            origin = event.origin
            assert origin.sequence > taken.get(origin.outbox, 0), event
            taken[origin.outbox] = origin.sequence


def _assert_ended_well(cluster: SimulatedCluster, name: str) -> None:
    jobs = [job for job in cluster.controller.core.state.jobs.values() if job.name == name]
    if any(job.state is JobState.ENDED and job.ending.succeeded for job in jobs):
        assert set(cluster.ranks_of[name].completed) == set(range(STEPS))
        return
    # All holders of one shard were dead at once: nothing is made up, the job waits.
    states = [(job.state, job.reason) for job in jobs]
    assert any("cannot be restored" in reason for _, reason in states), states


def test_every_kind_of_message_fault_is_played() -> None:
    told, repeated = Counter[str](), 0
    for seed in range(4):
        cluster, kinds = play(seed, _SHAPES[0])
        told, repeated = told + kinds, repeated + cluster.controller.repeated
    assert told.keys() >= _MESSAGES.keys()
    assert repeated > 100
