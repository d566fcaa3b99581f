"""Random faults of networks, agents, machines and the controller's loop: the seed is the report."""

import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from time import monotonic

import pytest

from everstep_common.orders import RunCheck, StartGeneration, StopGeneration
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.network import CONTROLLER, Transport
from everstep_sim.timeline import SECOND
from simulation import injections
from simulation.invariants import Invariants

SEEDS = range(100)
# The long test goes on from there for so long, in as many processes as there are parts.
LONG_MINUTES = float(os.environ.get("EVERSTEP_SCHEDULES_MINUTES", "60"))
_PARTS = 2
STEPS = 60
FAULTS_S = 90
END_S = 600
SHAPE = Shape(nodes=8, nodes_min=3, nodes_max=5, steps=STEPS, domains=4)


# A watcher probes once a second, so a silence may be that much shorter than it looks.
QUIET_NS = Settings().silence_ns - SECOND


class OnlyTheSilentAreLost(Invariants):
    """Besides all else: nobody is lost whom somebody has heard who can tell the controller."""

    def __init__(self) -> None:
        super().__init__()
        self._lost: set[str] = set()
        self.losses = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        nodes = cluster.controller.core.state.nodes
        lost = {name for name, node in nodes.items() if node.state is NodeState.LOST}
        for name in lost - self._lost:
            self.losses += 1
            quiet_ns = cluster.time.now_ns - cluster.fleet.reached_ns.get(name, 0)
            told = f"{name} is lost ({nodes[name].reason}), heard {quiet_ns / SECOND:.2f} s ago"
            assert quiet_ns >= QUIET_NS, told
        self._lost = lost


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
}


def run(seed: int, check: Invariants, injected: Counter[str]) -> SimulatedCluster:
    """Run one seeded schedule to the end of its job, and count what is injected."""
    cluster = SimulatedCluster(seed, SHAPE, check)
    faults, rng = Faults(cluster), random.Random(seed + 1)
    at_s = 8.0
    while at_s < FAULTS_S:
        kind = rng.choice(list(FAULTS))
        name = rng.choice(faults.names)
        injected[kind] += 1
        cluster.time.after(at_s, partial(FAULTS[kind], faults, name, rng))
        at_s += rng.uniform(3, 25)
    for name in faults.names:
        cluster.time.after(FAULTS_S + 100, partial(cluster.return_node, name))
        cluster.time.after(FAULTS_S + 110, partial(cluster.operator, name, isolate=False))
    cluster.run(END_S)
    return cluster


def play(seed: int, injected: Counter[str]) -> None:
    """Play one schedule; its job ends, or waits for a state that was lost with all who had it."""
    job = run(seed, OnlyTheSilentAreLost(), injected).job
    assert job is not None
    if "cannot be restored" in job.reason:
        # All holders of one shard were dead at once: nothing is made up, the job waits.
        assert job.state is JobState.WAITING_STATE
        return
    assert job.state is JobState.ENDED, job.reason
    assert job.ending.succeeded, job.reason
    assert job.lineage.last_step == STEPS - 1


RecordProperty = Callable[[str, object], None]


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_lost_who_could_be_reached_and_no_job_waits_for_ever(
    seed: int, record_property: RecordProperty
) -> None:
    injected = Counter[str]()
    play(seed, injected)
    record_property(injections.PROPERTY, dict(injected))


@pytest.mark.long
@pytest.mark.parametrize("part", range(_PARTS))
def test_as_many_schedules_as_fit_an_hour(part: int, record_property: RecordProperty) -> None:
    injected = Counter[str]()
    ends_s = monotonic() + 60 * LONG_MINUTES
    for seed in count(len(SEEDS) + part, _PARTS):
        play(seed, injected)
        if monotonic() > ends_s:
            break
    record_property(injections.PROPERTY, dict(injected))
