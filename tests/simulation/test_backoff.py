"""Storage that is away for a while kills ranks again and again: the job waits, and goes on."""

from dataclasses import dataclass, field

import pytest

from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobState, Outcome
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants

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
