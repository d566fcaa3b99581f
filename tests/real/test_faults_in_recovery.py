"""A second fault in each stage of a recovery from a first one: the job ends as if none had been."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from real.fault_books import check_books, safe_step, storing
from real.fault_world import FaultWorld, alone, fault_world

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_SCRIPT = Path(__file__).with_name("fault_job.py")
_STEPS = 50
_NODES = ("node-1", "node-2", "node-3", "node-4")
# The state of the job while its ranks wait at that point of their start.
_HELD = {
    "start": "starting",
    "rendezvous": "restoring",
    "restore": "restoring",
    "warm-up": "warming",
}


@contextmanager
def _detect(world: FaultWorld) -> Iterator[None]:
    """The fault has happened, and nobody knows of it."""
    world.kill_node(world.members()[-1])
    yield


@contextmanager
def _decide(world: FaultWorld) -> Iterator[None]:
    """The node is silent, and not yet judged to be lost."""
    world.kill_node(world.members()[-1])
    world.until("a silent node", lambda: world.state() == "stopping")
    yield


@contextmanager
def _stop(world: FaultWorld) -> Iterator[None]:
    """One launcher does not get its ranks stopped: it stands still."""
    first, *_, last = world.members()
    world.signal_launcher(first, signal.SIGSTOP)
    try:
        world.kill_process(last)
        world.until("a job that stops", lambda: world.state() == "stopping")
        yield
    finally:
        if world.fleet.launchers[first].exit_code is None:
            world.signal_launcher(first, signal.SIGCONT)


@contextmanager
def _plan(world: FaultWorld) -> Iterator[None]:
    """The first generation is over, the next one is being made."""
    world.kill_process(world.members()[-1])
    world.until("the next generation", lambda: world.fleet.job().generation > 1)
    yield


@contextmanager
def _held(world: FaultWorld, point: str) -> Iterator[None]:
    """The next generation's ranks wait at a point of their start."""
    world.hold(point)
    world.kill_process(world.members()[-1])
    world.until(f"ranks at {point}", lambda: world.held() and world.state() == _HELD[point])
    yield
    world.hold("")


_STAGES = ("detect", "decide", "stop", "plan", *_HELD)
_BY_ITSELF = {"detect": _detect, "decide": _decide, "stop": _stop, "plan": _plan}
_SECOND: dict[str, Callable[[FaultWorld], None]] = {
    "controller": lambda world: world.kill_controller(),
    "node": lambda world: world.kill_node(world.members()[0]),
    "process": lambda world: world.kill_process(world.members()[0]),
    "launcher": lambda world: world.kill_launcher(world.members()[0]),
    "agent": lambda world: world.kill_agent(world.members()[0]),
}
# What incidents are booked with; the strongest is what explains all that was seen.
_CAUSES = {"node": "node", "agent": "node", "launcher": "launcher", "process": "process"}
_STRONGEST = ("node", "launcher", "process")
# Two that are not among the long tests.
_ALWAYS = {("stop", "node"), ("restore", "controller")}
_CELLS = [(stage, second) for stage in _STAGES for second in _SECOND]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    return alone(tmp_path_factory.mktemp("alone"), [_SCRIPT, "--steps", str(_STEPS)])


@pytest.mark.parametrize(
    ("stage", "second"),
    [cell if cell in _ALWAYS else pytest.param(*cell, marks=pytest.mark.long) for cell in _CELLS],
)
def test_a_fault_in_the_middle_of_a_recovery_is_recovered_from_too(
    stage: str, second: str, wanted: dict[int, str], tmp_path: Path
) -> None:
    # Two nodes can hold all copies of a part in memory.
    stored = ("--persist", str(tmp_path / "stored"), "--persist-every", "1")
    script = [_SCRIPT, "--steps", str(_STEPS), "--step-seconds", "0.05"]
    with fault_world(_NODES, script, "--nnodes", "2", *stored) as world:
        world.launch()
        world.training()
        storing(world)
        safe = safe_step(world, stored=True)
        with _BY_ITSELF[stage](world) if stage in _BY_ITSELF else _held(world, stage):
            _SECOND[second](world)
        world.ends_well(wanted)
        check_books(world, _causes(stage, second), safe)


def _causes(stage: str, second: str) -> list[str]:
    """Return what incidents may be booked with, the strongest first."""
    first = "node" if stage in ("detect", "decide") else "process"
    found = {first, _CAUSES.get(second, first)}
    return [cause for cause in _STRONGEST if cause in found]


@pytest.mark.long
def test_a_job_whose_ranks_stop_while_the_controller_is_away_goes_on_when_it_is_back(
    wanted: dict[int, str],
) -> None:
    script = [_SCRIPT, "--steps", str(_STEPS), "--step-seconds", "0.05"]
    with fault_world(_NODES[:2], script, "--nnodes", "2") as world:
        world.launch()
        world.training()
        safe = safe_step(world, stored=False)
        with _stop(world):
            world.fleet.end_controller()
        logs = [world.fleet.folder / f"{name}-launcher.log" for name in world.fleet.nodes]
        world.until(
            "launchers that stop",
            lambda: all("generation 1 stops" in log.read_text(errors="replace") for log in logs),
        )
        world.fleet.start_controller()
        world.ends_well(wanted)
        check_books(world, ["process"], safe)
