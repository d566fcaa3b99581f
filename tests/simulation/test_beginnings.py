"""Jobs that hang before the first step of a generation: operators reach them, and looks do."""

import random
from dataclasses import dataclass, field
from functools import partial

import pytest

from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.jobs.lifecycle import ACTIVE, BEGINNING, OVER
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import AUTOMATION
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from everstep_sim.hangs import Hangs, SimulatedHang
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants
from simulation.seeds import seeds

_STEPS = 20
_SHAPE = Shape(
    nodes=5,
    nodes_min=3,
    nodes_max=4,
    steps=_STEPS,
    restarts_max=3,
)
# Where a rank may hang before its generation makes a step: before it has started, called in or got
# its state, or with that; and, as a job beside it, in steps and while nothing hangs.
_PLACES: dict[str, Phase | None] = {
    "started": Phase.STARTED,
    "attached": Phase.ATTACHED,
    "restored": Phase.RESTORED,
    "first step": None,
}
# An operator's word has 10 s; messages take a moment.
_ACTS_S = 10.5
_OWNED = frozenset({AUTOMATION})


@dataclass
class _Order:
    """An operator's word, and when the generation that it was about was left."""

    kind: type[events.RestartOrdered] | type[events.StopOrdered]
    at_s: float
    generation: int = 0
    state: JobState | None = None
    ordered_ns: int = 0
    left_ns: int = 0

    def give(self, cluster: SimulatedCluster) -> None:
        job = cluster.job
        if job is None or job.state in OVER or not cluster.controller.listens:
            cluster.time.after(1, partial(self.give, cluster))
            return
        self.generation, self.state = job.generation.number, job.state
        self.ordered_ns = cluster.controller.now_ns
        cluster.fleet.submit(self.kind(JOB, "ops", "it hangs"))

    def watch(self, cluster: SimulatedCluster) -> None:
        job = cluster.job
        if not self.ordered_ns or self.left_ns or job is None:
            return
        if job.state not in ACTIVE or job.generation.number != self.generation:
            self.left_ns = cluster.controller.now_ns

    @property
    def took_s(self) -> float:
        assert self.left_ns, self
        return (self.left_ns - self.ordered_ns) / SECOND


@dataclass
class _Story:
    seed: int
    hangs: list[SimulatedHang]
    orders: list[_Order] = field(default_factory=list)
    shape: Shape = _SHAPE
    claimed: set[str] = field(default_factory=set)

    def play(self, until_s: float) -> SimulatedCluster:
        invariants = Invariants()

        def check(cluster: SimulatedCluster, event: events.Event) -> None:
            invariants(cluster, event)
            for order in self.orders:
                order.watch(cluster)
            nodes = cluster.controller.core.state.nodes.values()
            owners = {
                node.name for node in nodes if {one.owner for one in node.isolation.claims} & _OWNED
            }
            self.claimed |= owners

        cluster = SimulatedCluster(self.seed, self.shape, check)
        Hangs(cluster, self.hangs)
        for order in self.orders:
            cluster.time.after(order.at_s, partial(order.give, cluster))
        cluster.run(until_s)
        return cluster


def _hang(place: str, kind: HangClass = HangClass.CPU_SIDE, times: int = 1) -> SimulatedHang:
    """Return a hang of rank 1 that has no end by itself."""
    return SimulatedHang(kind=kind, step=0, rank=1, phase=_PLACES[place], times=times)


def _ended_well(cluster: SimulatedCluster) -> bool:
    return cluster.job is None or cluster.job.ending.succeeded or JOB in cluster.over


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds(3, 25))
def test_a_restart_reaches_a_job_that_hangs_anywhere_before_its_first_step(
    place: str, seed: int
) -> None:
    at_s = random.Random(seed).uniform(8, 300)
    order = _Order(events.RestartOrdered, at_s)
    cluster = _Story(seed, [_hang(place)], [order]).play(2000)
    assert order.state in BEGINNING
    assert order.took_s <= _ACTS_S
    assert _ended_well(cluster)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds(3, 25))
def test_a_stop_ends_a_job_that_hangs_anywhere_before_its_first_step(place: str, seed: int) -> None:
    at_s = random.Random(seed).uniform(8, 300)
    order = _Order(events.StopOrdered, at_s)
    cluster = _Story(seed, [_hang(place, times=1000)], [order]).play(2000)
    assert order.state in BEGINNING
    assert order.took_s <= _ACTS_S
    assert cluster.job is not None
    assert cluster.job.state is JobState.ENDED
    assert "it hangs" in cluster.job.reason


@pytest.mark.parametrize("kind", [events.RestartOrdered, events.StopOrdered])
@pytest.mark.parametrize("seed", seeds(10, 200))
def test_orders_are_carried_out_whenever_they_come_and_wherever_a_job_hangs(
    seed: int, kind: type[events.RestartOrdered] | type[events.StopOrdered]
) -> None:
    """At any time, in any state: with steps at a boundary, without any within ten seconds."""
    rng = random.Random(seed)
    hang = replace_step(_hang(rng.choice([*_PLACES])), rng)
    order = _Order(kind, rng.uniform(0.5, 60))
    cluster = _Story(seed, [hang], [order]).play(4000)
    if order.ordered_ns:
        # A job that makes steps goes on to the boundary, and may hang on the way there.
        limit_s = _ACTS_S if order.state in (*BEGINNING, JobState.STALLED) else 2 * _ACTS_S
        assert order.took_s <= limit_s, order
    job = cluster.job
    assert job is None or job.state is JobState.ENDED, (job.state, job.reason)


def replace_step(hang: SimulatedHang, rng: random.Random) -> SimulatedHang:
    """Have a hang that is at a step be at any step."""
    hang.step = rng.randint(0, _STEPS - 1)
    return hang


@pytest.mark.parametrize("kind", [HangClass.FROZEN, HangClass.DEAD])
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds(2, 15))
def test_what_cannot_go_on_before_the_first_step_is_restarted_by_the_look_after_a_minute(
    place: str, kind: HangClass, seed: int
) -> None:
    hang = _hang(place, kind)
    story = _Story(seed, [hang])
    cluster = story.play(2000)
    assert _ended_well(cluster)
    second = cluster.ranks.generations[2]
    assert second.members
    assert not story.claimed


@pytest.mark.parametrize("kind", [HangClass.CPU_SIDE, HangClass.SILENT, HangClass.FABRIC])
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds(2, 15))
def test_a_start_that_takes_long_is_told_of_and_never_restarted(
    place: str, kind: HangClass, seed: int
) -> None:
    """A rank that loads for half an hour, in the first generation and in one after a kill."""
    rng = random.Random(seed)
    hang = _hang(place, kind, times=2)
    hang.lasts_s = rng.uniform(100, 1800)
    story = _Story(seed, [hang])
    cluster = story.play(8000)
    assert _ended_well(cluster)
    assert set(cluster.ranks.generations) == {1}
    assert not story.claimed


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("seed", seeds(2, 15))
def test_a_start_that_is_frozen_every_time_ends_no_job(place: str, seed: int) -> None:
    hang = _hang(place, HangClass.FROZEN, times=6)
    story = _Story(seed, [hang])
    cluster = story.play(40_000)
    assert _ended_well(cluster), cluster.job and cluster.job.reason
    assert len(hang.began_ns) == 6
    assert not story.claimed
