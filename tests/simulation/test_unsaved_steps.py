"""An agent that stays away while its ranks go on: what people are told, around the real core."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_controller.core import events
from everstep_controller.core.jobs import unsaved
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.timeline import SECOND

SHAPE = Shape(nodes=6, nodes_min=3, nodes_max=4, steps=10_000, domains=3)
FAULT_S, AWAY_S = 20.0, 200.0
SEEDS = range(1, 6)
_BACK_S = 25.0
# Several steps are on their way to a second node at any time; in three of sixty such runs all slots
# of the others are full of them when the agent ends.
QUICK = Shape(nodes=4, nodes_min=3, nodes_max=3, steps=100_000, step_s=0.05)


class Told:
    """When the finding was open, what it said last, and how far the job came meanwhile."""

    def __init__(self) -> None:
        self.opened_s = self.closed_s = 0.0
        self.message = ""
        self.lost_steps = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        del event
        now_s, state = cluster.time.now_ns / SECOND, cluster.controller.core.state
        found = list(unsaved.findings(state))
        if found:
            self.opened_s = self.opened_s or now_s
            self.message, self.closed_s = found[0].finding.message, 0.0
            assert cluster.job is not None
            self.lost_steps = unsaved.steps_at_risk(cluster.job)
        elif self.opened_s and not self.closed_s:
            self.closed_s = now_s


def _play(
    break_it: Callable[[Faults, str], None], seed: int, lasts_s: float
) -> tuple[Told, SimulatedCluster]:
    told = Told()
    cluster = SimulatedCluster(seed, SHAPE, told)

    def begin() -> None:
        assert cluster.job is not None
        break_it(Faults(cluster), cluster.job.generation.members[1])

    cluster.time.after(FAULT_S, begin)
    cluster.run(FAULT_S + lasts_s)
    return told, cluster


def _stop(faults: Faults, name: str) -> None:
    faults.restart_agent(name, AWAY_S)


def _hang(faults: Faults, name: str) -> None:
    faults.hang_agent(name, AWAY_S)


def _crash(faults: Faults, name: str) -> None:
    faults.crash_loop_agent(name, AWAY_S)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("away", [_stop, _hang])
def test_an_agent_that_stays_away_is_told_after_a_minute_and_nothing_moves(
    away: Callable[[Faults, str], None], seed: int
) -> None:
    told, cluster = _play(away, seed, 150)
    assert cluster.job is not None
    assert 60 <= told.opened_s - FAULT_S <= 80
    assert "is away" in told.message
    assert told.lost_steps > 80
    assert cluster.job.generation.number == 1
    assert not told.closed_s


@pytest.mark.parametrize("seed", SEEDS)
def test_an_agent_that_is_back_saves_again_and_the_finding_is_over(seed: int) -> None:
    told, cluster = _play(_stop, seed, AWAY_S + 100)
    assert cluster.job is not None
    assert told.opened_s
    assert AWAY_S <= told.closed_s - FAULT_S <= AWAY_S + 80
    assert cluster.job.generation.number == 1
    assert cluster.job.lineage.recoverable_step is not None
    assert cluster.job.lineage.recoverable_step > told.lost_steps


@pytest.mark.parametrize("seed", SEEDS)
def test_an_agent_that_crashes_again_and_again_is_told_where_nothing_is_saved(seed: int) -> None:
    told, cluster = _play(_crash, seed, 150)
    assert cluster.job is not None
    assert 60 <= told.opened_s - FAULT_S <= 90
    assert cluster.job.generation.number == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_of_which_nobody_hears_are_told_without_an_absent_agent(seed: int) -> None:
    told, cluster = _play(lambda faults, name: faults.mute_vault(name, AWAY_S), seed, 150)
    assert cluster.job is not None
    assert 60 <= told.opened_s - FAULT_S <= 80
    assert "copies of newer ones are missing" in told.message
    assert cluster.job.generation.number == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_an_agent_that_is_restarted_is_no_finding(seed: int) -> None:
    told, _ = _play(lambda faults, name: faults.restart_agent(name, 5), seed, 150)
    assert not told.opened_s


@pytest.mark.parametrize("seed", range(1, 61))
def test_an_agent_that_comes_back_without_its_memory_keeps_nothing_from_being_saved(
    seed: int,
) -> None:
    cluster = SimulatedCluster(seed, QUICK, lambda *_: None)

    def begin() -> None:
        assert cluster.job is not None
        name = cluster.job.generation.members[1]
        Faults(cluster).restart_agent(name, 7, keeps_memory=False)

    cluster.time.after(10 + seed * 0.013, begin)
    cluster.run(45)
    assert cluster.job is not None
    assert cluster.job.generation.number == 1
    lineage = cluster.job.lineage
    assert lineage.last_step is not None
    assert lineage.recoverable_step is not None
    assert lineage.last_step - lineage.recoverable_step < 30


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("seed", range(1, 13))
def test_ranks_are_in_phase_again_soon_after_an_agent_was_away_also_with_one_slot_to_spare(
    seed: int, slots: int
) -> None:
    stands_s = since_s = 0.0
    known: int | None = None

    def watch(cluster: SimulatedCluster, _: events.Event) -> None:
        nonlocal stands_s, since_s, known
        now_s = cluster.time.now_ns / SECOND
        step = cluster.job.lineage.recoverable_step if cluster.job is not None else None
        if step != known:
            known, since_s = step, now_s
        if now_s > _BACK_S:
            stands_s = max(stands_s, now_s - since_s)

    cluster = SimulatedCluster(seed, replace(QUICK, own_files=True, slots=slots), watch)

    def begin() -> None:
        assert cluster.job is not None
        Faults(cluster).restart_agent(cluster.job.generation.members[1], _BACK_S - 20)

    cluster.time.after(20, begin)
    cluster.run(60)
    assert cluster.job is not None
    assert cluster.job.generation.number == 1
    # Nothing is recoverable while that agent is away. A copy is known to be for up to 0.7 s.
    assert stands_s < _BACK_S - 20 + 3
