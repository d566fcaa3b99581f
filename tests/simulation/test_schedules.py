"""Random schedules of faults against the real core: the seed is the bug report."""

import copy
import random
from dataclasses import replace
from functools import partial

import pytest

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.controller import fold
from everstep_sim.timeline import SECOND
from simulation.invariants import Invariants
from simulation.seeds import seeds

SEEDS = seeds(24, 200)
STEPS = 200
FAULTS_S = 240
END_S = 1800


def schedule(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Plan faults of every kind, then let every node return and every operator release."""
    at_s = 8.0
    while at_s < FAULTS_S:
        _plan(cluster, rng.choice(_FAULTS), rng.choice(list(cluster.fleet.nodes)), at_s, rng)
        at_s += rng.uniform(8, 30)
    for name in cluster.fleet.nodes:
        cluster.time.after(FAULTS_S + 20, partial(cluster.return_node, name))
        cluster.time.after(FAULTS_S + 30, partial(cluster.operator, name, isolate=False))


_FAULTS = ("rank", "node", "cut", "controller", "finding", "isolate", "nothing")


def _plan(
    cluster: SimulatedCluster, fault: str, name: str, at_s: float, rng: random.Random
) -> None:
    if fault == "rank":
        cluster.time.after(at_s, lambda: cluster.kill_rank(name))
    elif fault == "node":
        cluster.time.after(at_s, lambda: cluster.kill_node(name))
        cluster.time.after(at_s + rng.uniform(1, 60), lambda: cluster.return_node(name))
    elif fault == "cut":
        cluster.time.after(at_s, lambda: cluster.cut_off(name))
        cluster.time.after(at_s + rng.uniform(1, 40), lambda: cluster.return_node(name))
    elif fault == "controller":
        cluster.time.after(at_s, lambda: cluster.restart_controller(rng.uniform(0.2, 40)))
    elif fault == "finding":
        cluster.time.after(at_s, lambda: cluster.fatal_finding(name))
        cluster.time.after(at_s + rng.uniform(5, 60), lambda: cluster.operator(name, isolate=False))
    elif fault == "isolate":
        cluster.time.after(at_s, lambda: cluster.operator(name, isolate=True))
        cluster.time.after(at_s + rng.uniform(5, 60), lambda: cluster.operator(name, isolate=False))


def run(seed: int, check: Invariants | None = None) -> SimulatedCluster:
    """Run one seeded schedule to the end of its job."""
    shape = Shape(crash_chance=0.002, steps=STEPS)
    cluster = SimulatedCluster(seed, shape, check or Invariants())
    schedule(cluster, random.Random(seed + 1))
    cluster.run(END_S)
    return cluster


@pytest.mark.parametrize("seed", SEEDS)
def test_every_schedule_keeps_the_invariants_and_ends_well(seed: int) -> None:
    cluster = run(seed)
    job = cluster.job
    assert job is not None
    if "cannot be restored" in job.reason:
        # Two holders of one shard were dead at once: nothing is made up, the job waits and says so.
        assert job.state is JobState.WAITING_STATE
        return
    assert job.state is JobState.ENDED, job.reason
    assert job.ending.succeeded, job.reason
    assert job.lineage.last_step == STEPS - 1
    assert set(cluster.ranks.completed) == set(range(STEPS))


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_every_action_is_due_again_after_a_restart_at_any_prefix_of_the_journal(seed: int) -> None:
    journal = run(seed).controller.journal
    core = Core()
    for event, now_ns in journal:
        called_for = core.handle(event, now_ns)
        due = {action.id for action in core.due(now_ns)}
        forgotten = [
            action
            for action in called_for
            if not isinstance(action, actions.Announce | actions.HoldLauncher)
            and action.id not in due
        ]
        assert not forgotten, (event, forgotten)


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_a_journal_folds_to_the_same_state_every_time(seed: int) -> None:
    journal = run(seed).controller.journal
    cut = len(journal) // 2
    half = fold(journal[:cut])
    resumed = Core(copy.deepcopy(half.state))
    for event, now_ns in journal[cut:]:
        assert resumed.handle(event, now_ns) == half.handle(event, now_ns)
    assert resumed.state == half.state == fold(journal).state


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_a_controller_with_a_restored_old_journal_acts_on_nothing(seed: int) -> None:
    cluster = run(seed)
    old = fold(cluster.controller.journal[:20])
    now_ns = cluster.time.now_ns
    old.handle(events.ControllerStarted("0.1.0"), now_ns)
    for node in list(cluster.fleet.nodes.values())[:2]:
        hello = replace(node.hello(), highest_term=old.state.term + 1)
        done = old.handle(hello, now_ns)
        assert all(isinstance(action, actions.Announce | actions.SetTimer) for action in done)
    assert "recover" in old.state.halted
    for event, at_ns in cluster.controller.journal[20:]:
        if not isinstance(event, events.ControllerStarted):
            done = old.handle(event, max(at_ns, now_ns))
            assert all(isinstance(action, actions.Announce) for action in done)
    assert old.due(now_ns) == []


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_a_restored_old_journal_is_rebuilt_from_the_agents_on_an_operators_word(seed: int) -> None:
    cluster = SimulatedCluster(seed, Shape(steps=80), Invariants())
    cluster.time.after(15, partial(cluster.kill_rank, "n1"))
    cluster.time.after(30, partial(cluster.restart_controller, 2))
    kept = random.Random(seed).randrange(3, 60)
    cluster.time.after(45, partial(cluster.restore_backup, kept))
    cluster.time.after(60, cluster.recover)
    cluster.run(END_S)
    job = cluster.job
    assert job is not None
    assert job.ending.succeeded, (job.state, job.reason)
    assert set(cluster.ranks.completed) == set(range(80))
    # Nothing that was trained before the backup was restored is trained from the start again.
    assert len(cluster.ranks.completed[0]) == 1


def test_recovery_takes_a_term_above_every_one_that_agents_have_seen() -> None:
    core = Core()
    core.handle(events.ControllerStarted("0.1.0"), 0)
    hello = events.NodeConnected(
        node="n1", boot_id="b", agent_version="0.1.0", outbox="o", highest_term=7, host="n1"
    )
    core.handle(hello, 1 * SECOND)
    core.handle(events.RecoveryBegun("ops"), 2 * SECOND)
    core.handle(events.TimerDue("recovery"), 40 * SECOND)
    assert core.state.term == 8
    assert core.state.halted == ""


def test_the_schedules_do_check_common_steps() -> None:
    invariants = Invariants()
    run(3, invariants)
    assert invariants.common_steps_checked > 100
