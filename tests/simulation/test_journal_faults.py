"""A disk under the real journal that is full, fails or changes bits: nothing is lost in silence."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from everstep_controller.core.model.job import JobState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.disk import JournalDisk
from everstep_sim.faults import Faults
from simulation.seeds import seeds
from simulation.whatever_happens import WhateverHappens

STEPS = 50
FAULTS_S = 80.0
END_S = 700.0
_SHAPE = Shape(nodes=5, nodes_min=3, nodes_max=3, steps=STEPS, domains=3)
_CRASHES = Shape(nodes=5, nodes_min=3, nodes_max=4, steps=STEPS, crash_chance=0.003)

Fault = Callable[[Faults, str, random.Random], object]

_FAILS: dict[str, Fault] = {
    "full": lambda f, _, rng: f.fill_disk(rng.choice([0.5, 3, 12, 45])),
    "error": lambda f, _, rng: f.fail_disk(rng.choice([0.5, 3, 12, 45])),
}
_BESIDE: dict[str, Fault] = {
    "rank": lambda f, name, _: f.cluster.kill_rank(name),
    "agent": lambda f, name, rng: f.restart_agent(name, rng.uniform(1, 6)),
    "controller": lambda f, _, rng: f.cluster.restart_controller(rng.uniform(0.2, 20)),
    "power": lambda f, name, rng: _power(f, name, rng.uniform(5, 40)),
    "stall": lambda f, _, rng: f.stall_controller(rng.uniform(0.3, 10)),
}


def _power(faults: Faults, name: str, away_s: float) -> None:
    faults.lose_power([name])
    faults.later(away_s, partial(faults.give_power, name))


class _Story:
    """One schedule of faults of the disk and of what is journaled on it."""

    def __init__(self, seed: int, folder: Path, shape: Shape = _SHAPE) -> None:
        self.rng = random.Random(seed + 1)
        self.check = WhateverHappens()
        self.cluster = SimulatedCluster(seed, shape, self.check)
        self.disk = self.cluster.controller.disk = JournalDisk(folder)
        self.faults = Faults(self.cluster)

    def plan(self, kinds: dict[str, Fault], at_s: float, apart_s: tuple[float, float]) -> None:
        """Have faults of these kinds happen, one after the other."""
        while at_s < FAULTS_S:
            kind, name = self.rng.choice(list(kinds)), self.rng.choice(self.faults.names)
            if kind == "rank":
                self.check.grounds.add(name)
            self.cluster.time.after(at_s, partial(kinds[kind], self.faults, name, self.rng))
            at_s += self.rng.uniform(*apart_s)

    def play(self) -> SimulatedCluster:
        """Play it; all nodes are back in the end."""
        for name in self.faults.names:
            self.cluster.time.after(FAULTS_S + 60, partial(self.cluster.return_node, name))
            release = partial(self.cluster.operator, name, isolate=False)
            self.cluster.time.after(FAULTS_S + 70, release)
        self.cluster.run(END_S)
        self.disk.close()
        return self.cluster


def _assert_ended_well(cluster: SimulatedCluster) -> None:
    jobs = list(cluster.controller.core.state.jobs.values())
    states = [(job.state, job.reason) for job in jobs]
    if any("cannot be restored" in reason for _, reason in states):
        return  # all holders of one shard were dead at once: nothing is made up, the job waits
    assert any(job.state is JobState.ENDED and job.ending.succeeded for job in jobs), states
    assert set(cluster.ranks.completed) == set(range(STEPS))


@pytest.mark.parametrize("crashes", [False, True], ids=["calm", "crashes"])
@pytest.mark.parametrize("seed", seeds(4, 150))
def test_a_journal_that_takes_nothing_for_a_while_costs_no_step(
    seed: int, crashes: bool, tmp_path: Path
) -> None:
    story = _Story(seed, tmp_path, _CRASHES if crashes else _SHAPE)
    story.plan(_FAILS, story.rng.uniform(3, 20), (15, 40))
    story.plan(_BESIDE, 10, (8, 25))
    cluster = story.play()
    _assert_ended_well(cluster)


@pytest.mark.parametrize("seed", seeds(6, 300))
def test_a_bit_that_changes_in_the_journal_is_found_or_changes_nothing(
    seed: int, tmp_path: Path
) -> None:
    story = _Story(seed, tmp_path)
    flip_s = story.rng.uniform(12, 40)
    if seed % 4:
        story.faults.later(story.rng.uniform(8, flip_s), story.faults.back_up_journal)
    bits = story.rng.choice([1, 1, 4, 16])
    story.faults.later(flip_s, partial(story.faults.flip_journal, bits, 2.0, 10.0))
    story.plan(_BESIDE, 10, (20, 40))
    cluster = story.play()
    _assert_ended_well(cluster)


def test_faults_of_the_disk_are_met(tmp_path: Path) -> None:
    refused = loads = found = 0
    for seed in range(8):
        (folder := tmp_path / str(seed)).mkdir()
        story = _Story(seed, folder)
        story.plan(_FAILS, 20, (30, 31))
        story.faults.later(12, story.faults.back_up_journal)
        story.faults.later(30, partial(story.faults.flip_journal, 4, 2.0, 10.0))
        story.play()
        refused, loads = refused + story.disk.refused, loads + story.disk.loads
        found += len(story.faults.refusals)
    assert refused > 50
    assert loads > 8
    assert found >= 2
