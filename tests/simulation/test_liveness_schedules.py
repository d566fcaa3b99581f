"""Random faults of all kinds, in any combination, with one job or two: the seed is the report."""

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from time import monotonic

import pytest

from everstep_common.judging.findings import Severity
from everstep_common.orders import RunCheck, StartGeneration, StopGeneration
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.network import CONTROLLER, Transport
from simulation import injections
from simulation.own_agents import STRAY
from simulation.whatever_happens import WhateverHappens

_FIRST = 100
# Some of those that follow the first have found faults.
SEEDS = (*range(_FIRST), 270, 317)
# The long test goes on from there for so long, in as many processes as there are parts.
LONG_MINUTES = float(os.environ.get("EVERSTEP_SCHEDULES_MINUTES", "60"))
_PARTS = 2
STEPS = 60
FAULTS_S = 90
END_S = 600
_DAY_S = 86_400
# So many first steps may be lost with whoever made them before anybody else had a copy.
_UNSAVED_STEPS = 2
_SEVERITIES = list(Severity)
# One job with spares; two with a spare that they share; two that share all nodes, each of which has
# room for both, or for one, or does not tell.
SHAPES = (
    Shape(nodes=8, nodes_min=3, nodes_max=5, steps=STEPS, domains=4),
    Shape(nodes=7, nodes_min=3, nodes_max=3, steps=STEPS, domains=4, jobs=2, shared=1, devices=1),
    Shape(nodes=8, nodes_min=3, nodes_max=5, steps=STEPS, domains=4, crash_chance=0.002),
    Shape(nodes=6, nodes_min=2, nodes_max=4, steps=STEPS, domains=3, jobs=2, shared=6, devices=2),
    Shape(nodes=8, nodes_min=3, nodes_max=4, steps=STEPS, domains=4, jobs=2, shared=8, devices=1),
    Shape(nodes=7, nodes_min=3, nodes_max=3, steps=STEPS, domains=4, jobs=2, shared=1),
)

Fault = Callable[[Faults, str, random.Random], None]


def _cut_stream(faults: Faults, name: str, rng: random.Random) -> None:
    ends = rng.choice([(name, CONTROLLER), (CONTROLLER, name)])
    faults.cut((Transport.STREAM,), *ends, rng.uniform(1, 60))


def _cut_pairs(faults: Faults, name: str, rng: random.Random) -> None:
    """Cut one channel between a node and some others, in one direction or both."""
    channels = rng.choice([(Transport.UDP,), (Transport.TCP,), (Transport.UDP, Transport.TCP)])
    others = [other for other in faults.names if other != name]
    for other in rng.sample(others, rng.randrange(1, len(others))):
        cut = rng.choice([faults.cut, faults.cut_pair])
        cut(channels, name, other, rng.uniform(1, 90))


def _ignore_orders(faults: Faults, name: str, rng: random.Random) -> None:
    kinds = rng.sample([StartGeneration, StopGeneration, RunCheck], 2)
    faults.ignore_orders(name, kinds, rng.uniform(5, 60))


def _power(faults: Faults, name: str, rng: random.Random) -> None:
    faults.lose_power([name])
    faults.later(rng.uniform(1, 60), partial(faults.give_power, name))


def _cut_off(faults: Faults, name: str, rng: random.Random) -> None:
    faults.cluster.cut_off(name)
    faults.later(rng.uniform(1, 40), partial(faults.cluster.return_node, name))


def _find(faults: Faults, name: str, rng: random.Random) -> None:
    faults.cluster.fatal_finding(name)
    if rng.random() < 0.7:
        faults.later(rng.uniform(0.1, 60), partial(faults.cluster.finding_over, name))


def _isolate(faults: Faults, name: str, rng: random.Random) -> None:
    faults.cluster.operator(name, isolate=True)
    faults.later(rng.uniform(5, 60), partial(faults.cluster.operator, name, isolate=False))


def _step_clock(faults: Faults, name: str, rng: random.Random) -> None:
    """Set the wall clock of a node, or the controller's while it is started again."""
    # Never back: the wall clock bounds how far any node may take the timeline.
    ahead_s = rng.choice([0, 3600, _DAY_S])
    if rng.random() < 0.3:
        faults.set_clock(name, ahead_s)
    else:
        faults.set_controller_clock(ahead_s, rng.uniform(0.2, 40), reboots=rng.random() < 0.5)


FAULTS: dict[str, Fault] = {
    "agent pauses": lambda f, name, rng: f.pause_agent(name, rng.uniform(0.5, 60)),
    "agent hangs": lambda f, name, rng: f.hang_agent(name, rng.uniform(0.5, 60)),
    "agent ignores orders": _ignore_orders,
    "machine freezes": lambda f, name, rng: f.freeze_machine(name, rng.uniform(0.5, 20)),
    "agent restarts": lambda f, name, rng: f.restart_agent(
        name, rng.uniform(1, 10), announced=rng.random() < 0.5
    ),
    "UDP is blocked": lambda f, name, rng: f.block_udp(
        name, rng.uniform(2, 90), answers=rng.random() < 0.5
    ),
    "UDP is lost": lambda f, _, rng: f.lose_datagrams(rng.uniform(0.1, 0.7), rng.uniform(5, 60)),
    "stream is cut": _cut_stream,
    "pairs are cut": _cut_pairs,
    "controller's network": lambda f, _, rng: f.cut_controller(rng.uniform(1, 60)),
    "controller stalls": lambda f, _, rng: f.stall_controller(rng.uniform(0.3, 40)),
    "controller restarts": lambda f, _, rng: f.cluster.restart_controller(rng.uniform(0.2, 40)),
    "domain": lambda f, name, rng: f.cut_domain(f.domain_of(name), rng.uniform(2, 40)),
    "power": _power,
    "cut off": _cut_off,
    "rank": lambda f, name, _: f.cluster.kill_rank(name),
    "finding": _find,
    "finding of a job": lambda f, name, rng: f.cluster.job_finding(name, rng.choice(_SEVERITIES)),
    "operator isolates": _isolate,
    "vault is mute": lambda f, name, rng: f.mute_vault(name, rng.uniform(5, 90)),
    "name twin": lambda f, name, rng: f.twin(name, rng.choice([5, 20, 60])),
    "stranger": lambda f, name, rng: f.foreigner(rng.choice([STRAY, name]), rng.uniform(1, 60)),
    "newer than the journal": lambda f, _, rng: f.liar(
        STRAY, rng.uniform(1, 60), by_generation=rng.random() < 0.5
    ),
    "messages are late": lambda f, name, rng: f.delay_stream(
        name, rng.uniform(0.1, 4), rng.uniform(1, 40)
    ),
    "a message is late": lambda f, name, rng: f.delay_message(name, rng.uniform(0.1, 8)),
    "an order is late": lambda f, name, rng: f.delay_orders_on_stream(name, rng.uniform(0.1, 8)),
    "records are doubled": lambda f, name, rng: f.double_records(name, rng.randint(1, 30)),
    "outbox is replayed": lambda f, name, rng: f.replay_outbox(name, rng.uniform(0.2, 4)),
    "ranks are stopped": lambda f, name, rng: f.stop_ranks(name, rng.choice([2, 20, 200])),
    "clock step": _step_clock,
    "old journal": lambda f, _, rng: f.restore_journal(rng.uniform(2, 60), rng.uniform(5, 30)),
}
# What automation may isolate a node for that is reachable.
_GROUNDS = ("rank", "finding")


def run(seed: int, check: WhateverHappens, injected: Counter[str]) -> SimulatedCluster:
    """Run one seeded schedule to the end of its jobs, and count what is injected."""
    cluster = SimulatedCluster(seed, SHAPES[seed % len(SHAPES)], check)
    faults, rng = Faults(cluster), random.Random(seed + 1)
    at_s = 8.0
    while at_s < FAULTS_S:
        kind = rng.choice(list(FAULTS))
        name = rng.choice(faults.names)
        injected[kind] += 1
        if kind in _GROUNDS:
            check.grounds.add(name)
        cluster.time.after(at_s, partial(FAULTS[kind], faults, name, rng))
        at_s += rng.uniform(3, 25)
    for name in faults.names:
        cluster.time.after(FAULTS_S + 100, partial(cluster.return_node, name))
        cluster.time.after(FAULTS_S + 110, partial(cluster.operator, name, isolate=False))
    cluster.run(END_S)
    return cluster


def _made_in_vain(cluster: SimulatedCluster, name: str) -> list[int]:
    """Return the steps that a job had made when it was begun from scratch again."""
    completed = cluster.ranks_of[name].completed
    again = completed.get(0, [])[1:2]
    return [step for step, made in completed.items() if again and made[0] < again[0]]


def play(seed: int, injected: Counter[str]) -> None:
    """Play one schedule; each job ends, or waits for what was lost with all who had it."""
    check = WhateverHappens()
    cluster = run(seed, check, injected)
    for name in cluster.shape.names:
        in_vain = len(_made_in_vain(cluster, name))
        # Whoever waited while all was done begins the next job, where the end was forgotten.
        assert in_vain <= _UNSAVED_STEPS or (check.restored and in_vain == STEPS)
        made = set(cluster.ranks_of[name].completed) == set(range(STEPS))
        few = len(cluster.launchers_of(name)) < cluster.shape.nodes_min
        # A launcher that comes while all is done begins the next job of its name; and one that had
        # ended when an old journal was put back is not known to have.
        if _ended_well(cluster, name) or (check.restored and few):
            assert made
            continue
        job = cluster.controller.core.state.job(name)
        assert job is not None
        # All holders of one shard were dead at once: nothing is made up, the job waits.
        waits = job.state is JobState.WAITING_STATE and "cannot be restored" in job.reason
        assert waits, (name, job.state, job.reason)


def _ended_well(cluster: SimulatedCluster, name: str) -> bool:
    jobs = [job for job in cluster.controller.core.state.jobs.values() if job.name == name]
    ended = [job for job in jobs if job.state is JobState.ENDED and job.ending.succeeded]
    return any(job.lineage.last_step == STEPS - 1 for job in ended)


RecordProperty = Callable[[str, object], None]


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_lost_who_could_be_reached_and_no_job_waits_for_ever(
    seed: int, record_property: RecordProperty
) -> None:
    injected = Counter[str]()
    try:
        play(seed, injected)
    finally:
        record_property(injections.PROPERTY, dict(injected))


@pytest.mark.long
# The last schedule begins within that time.
@pytest.mark.timeout(60 * LONG_MINUTES + 300)
@pytest.mark.parametrize("part", range(_PARTS))
def test_as_many_schedules_as_fit_an_hour(part: int, record_property: RecordProperty) -> None:
    injected = Counter[str]()
    ends_s = monotonic() + 60 * LONG_MINUTES
    try:
        for seed in count(_FIRST + part, _PARTS):
            play(seed, injected)
            if monotonic() > ends_s:
                break
    finally:
        record_property(injections.PROPERTY, dict(injected))
