"""A controller that is halted for a while: jobs go on as without one, and as one with it again."""

import random
from functools import partial

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import SHIPPED, Shape, SimulatedCluster
from everstep_sim.fleet import JOB
from everstep_sim.timeline import SECOND
from simulation.seeds import seeds
from simulation.whatever_happens import WhateverHappens

STEPS = 240
# When an old journal is put back, how long the controller is halted until an operator says so, and
# how long it listens to its agents then.
BACKUP_S, HALT_S, RECOVER_S = 60.0, 90.0, 130.0
LISTENS_S = SHIPPED.recover_listen_ns / SECOND
END_S = 1500
SEVERAL = Shape(nodes=5, nodes_min=3, nodes_max=4, steps=STEPS)
ONE_NODE = Shape(nodes=3, nodes_min=1, nodes_max=1, steps=STEPS)


class Halt(WhateverHappens):
    """Besides all else: what a halted controller tells nodes of their memory changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.halted = False
        # Of each job and generation, the recoverable step that nodes were told when it halted.
        self._told: dict[tuple[str, int], int] | None = None

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        super().__call__(cluster, event)
        if not cluster.controller.core.state.halted:
            self._told = None
            return
        self.halted = True
        if self._told is None:
            self._told = dict(cluster.vaults.told)
        assert cluster.vaults.told == self._told, "a controller that acts on nothing directs vaults"


def halt(cluster: SimulatedCluster, rng: random.Random, *, before_the_job: bool = False) -> None:
    """Put an old journal back; an operator orders the recovery later."""
    kept = [0]

    def back_up() -> None:
        kept[0] = len(cluster.controller.journal)

    def put_back() -> None:
        cluster.restore_backup(0 if before_the_job else kept[0])

    cluster.time.after(BACKUP_S + rng.uniform(-20, 10), back_up)
    # So that the cluster file knows a newer term than the backup will begin.
    for at_s in (BACKUP_S + 11, BACKUP_S + 15):
        cluster.time.after(at_s, partial(cluster.restart_controller, 1.0))
    cluster.time.after(HALT_S, put_back)
    cluster.time.after(RECOVER_S, cluster.recover)
    if rng.random() < 0.5:  # as who follows the documentation does
        again_s = RECOVER_S + LISTENS_S + rng.uniform(1, 9)
        cluster.time.after(again_s, partial(cluster.restart_controller, rng.uniform(0.5, 3)))


@pytest.mark.parametrize("before_the_job", [False, True], ids=["an old journal", "none"])
@pytest.mark.parametrize("seed", seeds(6, 40))
def test_a_job_on_one_node_that_fails_meanwhile_is_restarted_by_its_agent(
    seed: int, before_the_job: bool
) -> None:
    check = Halt()
    cluster = SimulatedCluster(seed, ONE_NODE, check)
    rng = random.Random(seed)
    halt(cluster, rng, before_the_job=before_the_job)
    # Some while it waits for the operator, some while it listens, and some as it acts again.
    died_s = HALT_S + 12 + rng.uniform(0, RECOVER_S + LISTENS_S + 8 - HALT_S - 12)
    seen: list[int] = []

    def kill() -> None:
        for name in cluster.whole_members():
            cluster.kill_rank(name)

    def look() -> None:
        seen.extend(cluster.whole_generations())

    cluster.time.after(died_s, kill)
    cluster.time.after(died_s + 8, look)
    cluster.run(END_S)
    assert check.halted
    if died_s + 8 < RECOVER_S + LISTENS_S:
        assert len(seen) == 1, "its agent has waited for a controller that acts on nothing"
    job = cluster.controller.core.state.newest(JOB)
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True), job.reason
    assert set(cluster.ranks.completed) == set(range(STEPS))
    # Neither a whole generation is made again, nor more of it than its agent had not saved.
    again = [step for step, made in cluster.ranks.completed.items() if len(made) > 1]
    assert len(again) <= 4, again


@pytest.mark.parametrize("fault", ["rank", "node"])
@pytest.mark.parametrize("before_the_job", [False, True], ids=["an old journal", "none"])
@pytest.mark.parametrize("seed", seeds(4, 20))
def test_steps_become_recoverable_among_members_meanwhile(
    seed: int, before_the_job: bool, fault: str
) -> None:
    check = Halt()
    cluster = SimulatedCluster(seed, SEVERAL, check)
    rng = random.Random(seed)
    halt(cluster, rng, before_the_job=before_the_job)
    reached: list[int] = []

    def lose() -> None:
        reached.append(max(cluster.ranks.completed))
        name = rng.choice(cluster.whole_members())
        (cluster.kill_node if fault == "node" else cluster.kill_rank)(name)

    cluster.time.after(RECOVER_S + LISTENS_S - rng.uniform(1, 25), lose)
    cluster.run(END_S)
    assert check.halted
    job = cluster.controller.core.state.newest(JOB)
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, True), job.reason
    assert set(cluster.ranks.completed) == set(range(STEPS))
    again = [step for step, made in cluster.ranks.completed.items() if len(made) > 1]
    assert reached[0] > 100, "they have trained on"
    assert len(again) <= 4, again
