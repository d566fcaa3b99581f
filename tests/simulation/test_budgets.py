"""Budgets hold at every moment, whatever nodes find: how many are out, and how many an hour."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.nodes import budgets
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from simulation.budget_watch import Budgets
from simulation.seeds import seeds

SMALL = Shape(nodes=10, nodes_min=3, nodes_max=4, steps=100_000, domains=5)
SHAPE = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=100_000, domains=6)


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


@pytest.mark.parametrize("seed", seeds(5, 12))
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


@pytest.mark.parametrize("seed", seeds(2, 4))
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


@pytest.mark.parametrize("seed", seeds(8, 24))
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
