"""Storage that is away for a while kills ranks again and again: the job waits, and goes on."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobState, Outcome
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants
from simulation.seeds import seeds

STEPS = 60
SHAPE = Shape(nodes=4, nodes_min=3, nodes_max=3, steps=STEPS, restarts_max=3)
_BEGINS = (JobState.STARTING, JobState.RESTORING, JobState.WARMING)


@dataclass
class _Outage:
    """Kills a rank of every generation that begins within a time."""

    from_s: float
    until_s: float
    invariants: Invariants = field(default_factory=Invariants)
    struck: set[int] = field(default_factory=set)
    states: set[JobState] = field(default_factory=set)

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self.invariants(cluster, event)
        job = cluster.job
        if job is None:
            return
        self.states.add(job.state)
        now_s = cluster.time.now_ns / SECOND
        first = not self.struck and job.state is JobState.RUNNING
        number = job.generation.number
        lasts = self.from_s <= now_s < self.until_s
        if lasts and number not in self.struck and (first or job.state in _BEGINS):
            self.struck.add(number)
            node = job.generation.members[number % len(job.generation.members)]
            cluster.time.after(0.2, lambda: cluster.kill_rank(node))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("outage_s", [20.0, 400.0])
def test_a_job_survives_what_kills_its_ranks_for_longer_than_its_restarts_would_last(
    outage_s: float, seed: int
) -> None:
    outage = _Outage(5.0, 5.0 + outage_s)
    cluster = SimulatedCluster(seed, SHAPE, outage)
    cluster.run(3600)
    job = cluster.job
    assert job is not None
    assert job.outcome is Outcome.SUCCEEDED, job.reason
    assert JobState.BACKING_OFF in outage.states
    assert set(cluster.ranks.completed) == set(range(STEPS))
    # The waits are as long as the outage, and the last one at most as long once more.
    waited_s = job.ledger.totals(cluster.time.now_ns)[Category.BACKOFF] / SECOND
    assert outage_s / 4 <= waited_s <= 2 * outage_s + 20
    # Three restarts without a step were its end before, within seconds.
    assert len(outage.struck) <= 9
    assert job.ledger.wall_ns(cluster.time.now_ns) == sum(
        job.ledger.totals(cluster.time.now_ns).values()
    )


# --- what people and nodes do meanwhile -----------------------------------------------------------

LONG_S = 200.0
_ONE_NODE = Shape(nodes=3, nodes_min=1, nodes_max=1, steps=STEPS, restarts_max=3)
_SEVERAL = Shape(nodes=6, nodes_min=3, nodes_max=3, steps=STEPS, restarts_max=3)
_Act = Callable[[SimulatedCluster, str, random.Random], None]


def _order_restart(cluster: SimulatedCluster, _: str, rng: random.Random) -> None:
    cluster.fleet.submit(events.RestartOrdered("train", "ops", "it is mounted again"))
    if rng.random() < 0.5:
        cluster.restart_controller(rng.uniform(0.2, 10))


def _drain(cluster: SimulatedCluster, name: str, rng: random.Random) -> None:
    cluster.fleet.submit(events.OperatorDrained(name, "ops", "work on it"))
    cluster.time.after(rng.uniform(5, 40), partial(cluster.operator, name, isolate=False))


def _pause(cluster: SimulatedCluster, _: str, rng: random.Random) -> None:
    cluster.fleet.submit(events.AutomationPaused("train", "ops", "we look"))
    cluster.time.after(rng.uniform(1, 30), partial(_resume, cluster))


def _resume(cluster: SimulatedCluster) -> None:
    """Have automation go on; later, where there is no controller that would hear it."""
    if cluster.controller.up and not cluster.controller.core.state.recovering:
        cluster.fleet.submit(events.AutomationResumed("train", "ops"))
    else:
        cluster.time.after(5, partial(_resume, cluster))


def _end_launcher(cluster: SimulatedCluster, name: str, rng: random.Random) -> None:
    if cluster.fleet.nodes[name].of("train").launcher:
        cluster.end_launcher(name, by_user=False)
        cluster.time.after(rng.uniform(1, 20), partial(cluster.return_node, name))


def _cut_off(cluster: SimulatedCluster, name: str, rng: random.Random) -> None:
    # Of a job on one node the ranks would train on behind the cut, as they should. Back before a
    # recovery has ended: who is away for longer is not waited for (decision 103).
    if cluster.shape.nodes_max > 1:
        cluster.cut_off(name)
        cluster.time.after(rng.uniform(1, 20), partial(cluster.return_node, name))


def _find(cluster: SimulatedCluster, name: str, rng: random.Random) -> None:
    cluster.fatal_finding(name)
    cluster.time.after(rng.uniform(1, 40), partial(cluster.finding_over, name))


ACTS: tuple[_Act, ...] = (
    _order_restart,
    _drain,
    _pause,
    _end_launcher,
    _cut_off,
    _find,
    lambda cluster, _, rng: cluster.restart_controller(rng.uniform(0.2, 30)),
    lambda cluster, _name, _rng: cluster.recover(),
)


@dataclass
class _BusyOutage(_Outage):
    """An outage during which people and nodes do something in each wait."""

    rng: random.Random = field(default_factory=random.Random)
    is_due: bool = False

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        job = cluster.job
        if job is not None and job.state is JobState.BACKING_OFF and not self.is_due:
            self.is_due = True
            cluster.time.after(self.rng.uniform(0, 8), partial(self._act, cluster))

    def _act(self, cluster: SimulatedCluster) -> None:
        self.is_due = False
        lasts = cluster.time.now_ns / SECOND < self.until_s
        name = self.rng.choice(sorted(cluster.fleet.nodes))
        if lasts and cluster.controller.up and name in cluster.controller.core.state.nodes:
            self.rng.choice(ACTS)(cluster, name, self.rng)


@pytest.mark.parametrize("shape", [_ONE_NODE, _SEVERAL], ids=["one node", "several"])
@pytest.mark.parametrize("seed", seeds(8, 100))
def test_a_job_survives_an_outage_whatever_people_and_nodes_do_meanwhile(
    seed: int, shape: Shape
) -> None:
    outage = _BusyOutage(5.0, 5.0 + LONG_S, rng=random.Random(seed))
    cluster = SimulatedCluster(seed, shape, outage)
    cluster.run(7200)
    job = cluster.job
    assert job is not None
    assert job.outcome is Outcome.SUCCEEDED, job.reason
    now_ns = cluster.time.now_ns
    assert job.ledger.wall_ns(now_ns) == sum(job.ledger.totals(now_ns).values())
