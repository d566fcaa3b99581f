"""Budgets hold at every moment, whatever nodes find: how many are out, and how many an hour."""

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.job import Cause, JobState
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.nodes import budgets
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.timeline import SECOND

HOUR_NS = 3600 * SECOND
SMALL = Shape(nodes=10, nodes_min=3, nodes_max=4, steps=100_000, domains=5)
SHAPE = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=100_000, domains=6)
_AWAY = (NodeState.LOST, NodeState.RETIRED, NodeState.MAINTENANCE)


class Budgets:
    """Sees what automation takes out, by the claims alone: how many at once, how many an hour."""

    def __init__(self) -> None:
        self.isolations: deque[int] = deque()
        self.stops: deque[int] = deque()
        self.level_max = self.isolations_max = self.stops_max = self.rows = self.changes = 0
        self.held_back = False
        # Who was isolated alive, until the claim is gone.
        self._isolated: set[str] = set()
        self._states: dict[str, NodeState] = {}
        self._returned: set[str] = set()
        self._was_running = False

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        state, now_ns = cluster.controller.core.state, cluster.time.now_ns
        self.rows += 1
        held: set[str] = set()
        for node in state.nodes.values():
            self._follow(node)
            if node.claim_of(AUTOMATION) and node.state not in _AWAY:
                held.add(node.name)
        held -= self._returned
        self.isolations.extend(now_ns for _ in held - self._isolated)
        claimed = {n.name for n in state.nodes.values() if n.claim_of(AUTOMATION)}
        self._isolated = (self._isolated | held) & claimed
        self._note_stop(cluster, now_ns)
        for told in (self.isolations, self.stops):
            while told and told[0] <= now_ns - HOUR_NS:
                told.popleft()
        self.level_max = max(self.level_max, len(held))
        self.isolations_max = max(self.isolations_max, len(self.isolations))
        self.stops_max = max(self.stops_max, len(self.stops))
        self.held_back = self.held_back or any(budgets.findings(state))
        for told_of, count, limit in (
            (f"{sorted(held)} isolated at once", len(held), budgets.level_limit(state)),
            ("isolations in an hour", len(self.isolations), budgets.isolation_limit(state)),
            ("stops in an hour", len(self.stops), state.settings.job_stops_per_hour),
        ):
            if count > limit:
                message = f"{told_of}: {count} of {limit} after {now_ns / SECOND:.1f} s, by {event}"
                pytest.fail(message, pytrace=False)

    def _follow(self, node: NodeRecord) -> None:
        """Take a node for one that has returned, until its first check since then has ended."""
        before = self._states.get(node.name)
        self.changes += before is not node.state
        if before is NodeState.LOST and node.state is NodeState.VALIDATING:
            self._returned.add(node.name)
        elif node.state is not NodeState.VALIDATING or node.check_failed:
            self._returned.discard(node.name)
        self._states[node.name] = node.state

    def _note_stop(self, cluster: SimulatedCluster, now_ns: int) -> None:
        job = cluster.job
        running = job is not None and job.state is JobState.RUNNING
        if job is not None and self._was_running and not running:
            by_automation = job.generation.cause in (Cause.FINDING, Cause.GROWTH)
            self.stops.extend([now_ns] * by_automation)
        self._was_running = running


def _play(
    seed: int, until_s: float, plan: Callable[[Faults], None], shape: Shape = SHAPE
) -> tuple[SimulatedCluster, Budgets]:
    """Run one job, with these faults from the 20th second on; the budgets are held throughout."""
    watch = Budgets()
    cluster = SimulatedCluster(seed, shape, watch)
    cluster.time.after(20, partial(plan, Faults(cluster)))
    cluster.run(until_s)
    return cluster, watch


@pytest.mark.parametrize("seed", range(3))
def test_a_false_finding_that_rolls_over_the_fleet_isolates_a_few_an_hour(seed: int) -> None:
    cluster, watch = _play(seed, 440, lambda f: f.roll_findings(10, 5, 400))
    assert watch.isolations_max == budgets.isolation_limit(cluster.controller.core.state)
    assert watch.held_back
    assert cluster.job is not None
    assert cluster.job.state is JobState.RUNNING
    assert cluster.job.lineage.last_step is not None
    assert cluster.job.lineage.last_step > 300


@pytest.mark.parametrize("seed", range(12))
def test_nodes_that_come_back_from_a_power_cut_with_false_findings_are_not_all_kept_out(
    seed: int,
) -> None:
    rng = random.Random(seed)
    names = rng.sample([f"n{number}" for number in range(24)], 20)
    cluster, watch = _play(seed, 150, lambda f: f.blip_power(names, rng.uniform(10, 60)))
    state = cluster.controller.core.state
    assert watch.level_max == budgets.level_limit(state)
    assert budgets.level(state) == budgets.level_limit(state)
    assert budgets.held_back_count(state) > 10


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("damped", [True, False])
def test_a_finding_that_comes_and_goes_ten_times_a_second_costs_a_few_changes(
    seed: int, damped: bool
) -> None:
    def flap(faults: Faults) -> None:
        assert faults.cluster.job is not None
        member = faults.cluster.job.generation.members[1]
        break_it = faults.flap_detector if damped else faults.flap_finding
        break_it(member, 60)

    cluster, watch = _play(seed, 82, flap, SMALL)
    found = [
        event
        for event, _ in cluster.controller.journal
        if events.kind_of(event) in (reports.FindingRaised, reports.FindingCleared)
    ]
    # Each node has joined, was checked and is healthy; then one is isolated at most three times.
    assert watch.changes <= 3 * SMALL.nodes + 12
    assert len(watch.isolations) <= 3
    assert cluster.job is not None
    assert len(cluster.job.recovery.incidents) <= 3
    assert len(found) <= 6 if damped else len(found) > 1000


Fault = Callable[[Faults, str, random.Random], None]


def _lose_power(faults: Faults, name: str, rng: random.Random) -> None:
    names = [name, *rng.sample(faults.names, rng.randrange(8))]
    faults.blip_power(sorted(set(names)), rng.uniform(2, 40))


def _find(faults: Faults, name: str, rng: random.Random) -> None:
    faults.cluster.fatal_finding(name)
    if rng.random() < 0.7:
        faults.later(rng.uniform(0.1, 60), partial(faults.cluster.finding_over, name))


def _say(faults: Faults, name: str, rng: random.Random) -> None:
    faults.cluster.operator(name, isolate=rng.random() < 0.5)


FAULTS: tuple[Fault, ...] = (
    _lose_power,
    _find,
    _find,
    _say,
    lambda f, name, rng: f.flap_finding(name, rng.uniform(0.2, 2)),
    lambda f, name, rng: f.cluster.kill_rank(name),
    lambda f, name, rng: f.cluster.restart_controller(rng.uniform(0.2, 10)),
    lambda f, name, rng: f.restart_agent(name, rng.uniform(1, 10)),
    lambda f, name, rng: f.freeze_machine(name, rng.uniform(2, 20)),
)


@pytest.mark.parametrize("seed", range(24))
def test_budgets_hold_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)

    def plan(faults: Faults) -> None:
        at_s = 0.0
        while at_s < 200:
            fault, name = rng.choice(FAULTS), rng.choice(faults.names)
            faults.later(at_s, partial(fault, faults, name, rng))
            at_s += rng.uniform(1, 12)

    _, watch = _play(seed, 240, plan, SMALL)
    assert watch.isolations_max
