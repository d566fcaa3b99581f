"""Ranks whose agent stays away move to a spare, around the real core; and what may go wrong of it.

Their launcher and they live on where they were, and nobody hears of them.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from everstep_common.reports import Storage
from everstep_controller.core import events
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.model.job import JobRecord, JobState, PlannedKind
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import Faults
from everstep_sim.fleet import JOB
from everstep_sim.timeline import SECOND
from simulation.seeds import seeds
from simulation.test_vault_schedules import Truth

SHAPE = Shape(
    nodes=6, nodes_min=3, nodes_max=4, steps=10_000, domains=3,
    # So seldom that nothing but what is asked of ranks without an agent is stored.
    storage=Storage("/shared", every_steps=100_000), own_files=True, enforced=("StepsUnsaved",),
)  # fmt: skip
FAULT_S, FOREVER_S = 40.0, 10_000.0
# A minute until people are told, ten seconds ahead and what a step takes to be stored, twice.
MOVED_S = 60 + 2 * 25
SEEDS = seeds(3, 12)

Break = Callable[[Faults, str], None]


def _stop(faults: Faults, name: str) -> None:
    faults.restart_agent(name, FOREVER_S)


def _hang(faults: Faults, name: str) -> None:
    faults.hang_agent(name, FOREVER_S)


def _die(faults: Faults, name: str) -> None:
    faults.restart_agent(name, FOREVER_S, announced=False)


class _Truth(Truth):
    """The same, but for memory that is free because a newer step is whole in storage."""

    def _nothing_was_freed_too_early(self, cluster: SimulatedCluster) -> None:
        job, latest = cluster.job, cluster.vaults.folder.latest
        number = job.generation.number if job is not None else 0
        told = cluster.vaults.told.get((JOB, number))
        if told is None or latest is None or latest.key <= (number, told):
            super()._nothing_was_freed_too_early(cluster)


class MoveScenario:
    """The agent of a member goes away for good; something happens when its move is planned."""

    def __init__(self, seed: int, shape: Shape = SHAPE, away: Break = _stop) -> None:
        self.truth = _Truth()
        self.cluster = SimulatedCluster(seed, shape, self._look)
        self.faults = Faults(self.cluster)
        self.away = away
        self.member = ""
        # When the move was planned first, when its generation began, and the newest step by then.
        self.planned_s = self.moved_s = 0.0
        self.step = 0
        self.message = ""
        self.then: Callable[[], None] = lambda: None
        self._newest = (0, 0)
        self.cluster.time.after(FAULT_S, self._begin)

    @property
    def job(self) -> JobRecord:
        assert self.cluster.job is not None
        return self.cluster.job

    @property
    def now_s(self) -> float:
        return self.cluster.time.now_ns / SECOND

    def run(self, lasts_s: float = 300) -> "MoveScenario":
        self.cluster.run(FAULT_S + lasts_s)
        return self

    def again(self) -> int:
        """Return how many steps were made more than once."""
        return sum(len(made) - 1 for made in self.cluster.ranks.completed.values())

    def _begin(self) -> None:
        self.member = self.job.generation.members[1]
        self.away(self.faults, self.member)

    def _look(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self.truth(cluster, event)
        assert len(cluster.whole_generations()) <= 1
        latest = cluster.vaults.folder.latest
        if latest is not None:
            assert latest.key >= self._newest, "nothing old comes after something new"
            self._newest = latest.key
        found = list(unsaved.findings(cluster.controller.core.state))
        self.message = found[0].finding.rule if found else self.message
        job = cluster.job
        if job is None or not self.member:
            return
        if job.planned is not None and job.planned.kind is PlannedKind.MOVE and not self.planned_s:
            self.planned_s = self.now_s
            cluster.time.after(0, self.then)
        if job.generation.number > 1 and job.state is JobState.RUNNING and not self.moved_s:
            self.moved_s = self.now_s


def _has_moved(scenario: MoveScenario) -> None:
    job = scenario.job
    assert (job.state, job.generation.number) == (JobState.RUNNING, 2)
    assert scenario.member not in job.generation.members
    assert len(job.generation.members) == SHAPE.nodes_max
    assert job.lineage.recoverable_step is not None
    assert job.lineage.last_step is not None
    assert job.lineage.last_step - job.lineage.recoverable_step < 5, "each step is saved again"


def _went_on(scenario: MoveScenario) -> None:
    assert (scenario.job.state, scenario.job.generation.number) == (JobState.RUNNING, 1)
    assert scenario.again() == 0
    assert scenario.job.planned is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("away", [_stop, _hang, _die])
def test_ranks_whose_agent_stays_away_move_and_no_step_is_made_again_for_long(
    away: Break, seed: int
) -> None:
    scenario = MoveScenario(seed, away=away).run()
    _has_moved(scenario)
    assert scenario.moved_s - FAULT_S < MOVED_S
    assert scenario.again() <= 3, "ranks wait for a while at the step of the move"
    old = scenario.cluster.fleet.nodes[scenario.member].of(JOB)
    assert old.running == 1, "nobody could tell its launcher"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_left_behind_is_stopped_when_the_agent_is_back_and_is_a_spare(seed: int) -> None:
    scenario = MoveScenario(seed)
    scenario.faults.later(FAULT_S + 200, lambda: scenario.cluster.return_node(scenario.member))
    scenario.run()
    _has_moved(scenario)
    old = scenario.cluster.fleet.nodes[scenario.member].of(JOB)
    assert old.running == 0
    assert scenario.job.launchers[scenario.member].stale_generation == 0
    assert scenario.cluster.controller.core.state.nodes[scenario.member].usable


@pytest.mark.parametrize("seed", SEEDS)
def test_where_automation_only_advises_nothing_moves_and_it_says_so(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, enforced=())).run()
    _went_on(scenario)
    assert "nothing moves its ranks by itself: the mode of StepsUnsaved" in scenario.message


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_spare_nothing_moves_and_it_says_so(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, nodes=4)).run()
    _went_on(scenario)
    assert "nothing moves its ranks by itself: no spare waits" in scenario.message


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_folder_nothing_moves_and_it_says_so(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, storage=None)).run()
    _went_on(scenario)
    assert "nothing moves its ranks by itself: none of their steps is saved" in scenario.message


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("after_s", [0.0, 5.0, 11.0])
def test_the_agent_is_back_before_the_step_of_the_move(after_s: float, seed: int) -> None:
    scenario = MoveScenario(seed)

    def back() -> None:
        if scenario.job.state is JobState.RUNNING:
            scenario.cluster.return_node(scenario.member)

    scenario.then = lambda: scenario.faults.later(after_s, back)
    scenario.run()
    assert scenario.planned_s
    _went_on(scenario)
    assert scenario.job.lineage.recoverable_step is not None
    assert (scenario.job.lineage.last_step or 0) - scenario.job.lineage.recoverable_step < 5


@pytest.mark.parametrize("seed", SEEDS)
def test_the_agent_is_back_while_the_job_moves(seed: int) -> None:
    scenario = MoveScenario(seed)

    def back() -> None:
        if scenario.job.state is JobState.STOPPING:
            scenario.cluster.return_node(scenario.member)
        else:
            scenario.faults.later(0.01, back)

    scenario.then = back
    scenario.run()
    assert (scenario.job.state, scenario.job.generation.number) == (JobState.RUNNING, 2)
    assert scenario.again() <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_spare_dies_before_the_step_of_the_move(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, nodes=5))
    names = scenario.cluster.fleet.nodes

    def kill() -> None:
        (spare,) = names.keys() - set(scenario.job.generation.members)
        scenario.cluster.kill_node(spare)

    scenario.then = kill
    scenario.run()
    assert scenario.planned_s
    _went_on(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_spare_dies_when_the_job_has_stopped_for_the_move(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, nodes=5))
    names = scenario.cluster.fleet.nodes

    def kill() -> None:
        if scenario.job.state is JobState.STARTING:
            (spare,) = names.keys() - set(scenario.cluster.ranks.generations[1].members)
            scenario.cluster.kill_node(spare)
        else:
            scenario.faults.later(0.01, kill)

    scenario.then = kill
    scenario.run()
    assert scenario.job.state is JobState.RUNNING, "it has re-formed"
    assert scenario.member not in scenario.job.generation.members
    assert scenario.again() <= 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("after_s", [0.0, 6.0, 12.0])
def test_the_controller_is_restarted_before_the_step_of_the_move(after_s: float, seed: int) -> None:
    scenario = MoveScenario(seed)

    def restart() -> None:
        scenario.cluster.restart_controller(3.0)

    scenario.then = lambda: scenario.faults.later(after_s, restart)
    scenario.run(600)
    _has_moved(scenario)
    assert scenario.again() < 120, "no more than what it costs to save steps once in two minutes"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_is_restarted_before_ranks_have_saved_anything_by_themselves(
    seed: int,
) -> None:
    scenario = MoveScenario(seed)
    scenario.faults.later(FAULT_S + 65, lambda: scenario.cluster.restart_controller(3.0))
    scenario.run(600)
    _has_moved(scenario)
    assert scenario.again() <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_controller_that_crashes_again_and_again_moves_once_or_not_at_all(seed: int) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, crash_chance=0.01)).run(900)
    assert scenario.job.generation.number <= 2
    assert scenario.again() < 180


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("after_s", [70, 90])
def test_a_drain_that_an_operator_orders_has_its_step_saved_as_well(
    after_s: float, seed: int
) -> None:
    scenario = MoveScenario(seed, replace(SHAPE, enforced=()))

    def drain() -> None:
        scenario.cluster.fleet.submit(events.OperatorDrained(scenario.member, "ops", "fan"))

    scenario.faults.later(FAULT_S + after_s, drain)
    scenario.run()
    _has_moved(scenario)
    assert scenario.moved_s - FAULT_S - after_s < 40
    assert scenario.again() <= 3


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_that_cannot_save_the_step_of_the_move_go_on(seed: int) -> None:
    scenario = MoveScenario(seed)
    scenario.then = lambda: setattr(scenario.cluster.vaults, "own_fault_chance", 1.0)
    scenario.run(600)
    assert scenario.planned_s
    _went_on(scenario)
    assert "was to be left already within an hour" in scenario.message
