"""Random restarts, reboots, moves and clock steps against the controller's timeline, by seed."""

import random
from dataclasses import dataclass, field

import pytest

from everstep_common.stamp import Stamp
from everstep_controller.runtime.clock import (
    ControllerClock,
    LastAlive,
    TimelineAnchor,
    Witness,
    resumed_clock,
)

_S = 1_000_000_000
_DAY_S = 86_400
SEEDS = range(100)
# When the first controller starts, by its wall clock.
BEGAN_S = 1_000_000


@dataclass
class _Machine:
    """A machine in true time: it boots anew now and then, and its wall clock is set."""

    name: str
    boots: int = 1
    booted_s: int = 0
    # Wall clock minus true time.
    ahead_s: int = 0

    def stamp(self, true_s: int) -> Stamp:
        """Return what its clocks say."""
        boot_id = f"{self.name}-{self.boots}"
        wall_s = BEGAN_S + true_s + self.ahead_s
        return Stamp(boot_id, (true_s - self.booted_s) * _S, wall_s * _S)

    def reboot(self, true_s: int) -> None:
        """Have booted just now."""
        self.boots, self.booted_s = self.boots + 1, true_s


@dataclass
class _World:
    """A controller with a job that never ends, and nodes of which one at least stays up.

    It is moved to machines that have been up for a minute, a day, and longer than a year.
    """

    rng: random.Random
    true_s: int = 0
    here: _Machine = field(default_factory=lambda: _Machine("controller"))
    nodes: list[_Machine] = field(default_factory=lambda: [_Machine(f"n{i}") for i in range(4)])
    kept: bytes | None = None
    last_ns: int = 0
    steps_of_wall: int = 0
    reboots: int = 0
    moves: int = 0

    def live(self) -> None:
        """Start the controller, hear the nodes, and run for a while; then it is gone."""
        clock = self._start()
        for node in self.rng.sample(self.nodes, len(self.nodes)):
            clock.hear(node.name, node.stamp(self.true_s))
        told_ns = (BEGAN_S + self.true_s) * _S
        # Never more than it was; and just what it was, as a node was up all the time.
        assert abs(clock.now_ns() - told_ns) <= 1, (clock.now_ns() - told_ns) / _S
        self.true_s += self.rng.randrange(10, 5_000)
        self.last_ns = clock.now_ns()
        self.kept = clock.anchor(self.here.stamp(0).boot_id, self._witnesses(clock)).encode()

    def break_something(self) -> None:
        """Let the controller be away, its machine boot, nodes boot, and wall clocks be set."""
        self.true_s += self.rng.randrange(1, 600)
        if self.rng.random() < 0.5:
            self.reboots += 1
            self.here.reboot(self.true_s)
            self.true_s += self.rng.randrange(1, 60)
        if self.rng.random() < 0.2:
            self.moves += 1
            up_s = self.rng.choice([60, _DAY_S, 400 * _DAY_S])
            self.here = _Machine(f"controller-{self.moves}", booted_s=self.true_s - up_s)
        for machine in (self.here, *self.nodes):
            if self.rng.random() < 0.3:
                self.steps_of_wall += 1
                # Not back: the wall clock bounds how far any node may take the timeline.
                machine.ahead_s = self.rng.choice([0, 3_600, _DAY_S])
        for node in self.rng.sample(self.nodes, self.rng.randrange(len(self.nodes))):
            node.reboot(self.true_s)

    def _start(self) -> ControllerClock:
        anchor = TimelineAnchor.decode(self.kept) if self.kept is not None else None
        last = LastAlive(anchor, self.last_ns, self.last_ns, job_runs=True)
        return resumed_clock(
            last,
            self.here.stamp(0).boot_id,
            lambda: self.here.stamp(self.true_s).wall_ns,
            lambda: self.here.stamp(self.true_s).boot_ns,
        )

    def _witnesses(self, clock: ControllerClock) -> dict[str, Witness]:
        stamps = {node.name: node.stamp(self.true_s) for node in self.nodes}
        now_ns = clock.now_ns()
        return {name: Witness(s.boot_id, now_ns - s.boot_ns) for name, s in stamps.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_of_a_wall_clock_moves_the_timeline_of_a_job(seed: int) -> None:
    world = _World(random.Random(seed))
    for _ in range(20):
        world.live()
        world.break_something()
    assert world.reboots
    assert world.moves
    assert world.steps_of_wall
