"""A stranger takes the rendezvous port between its offer and rank 0: the job comes up elsewhere."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from real.fault_world import FaultWorld, alone, fault_world

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_SCRIPT = Path(__file__).with_name("fault_job.py")
# Enough that a rank is killed in the middle also where the machine is busy.
_STEPS = 100


@contextmanager
def _taken(port: int) -> Iterator[None]:
    """Listen on a port, and answer nobody."""
    with socket.create_server(("", port)):
        yield


@pytest.mark.parametrize("generation", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_job_whose_port_a_stranger_has_comes_up_on_another(
    generation: int, tmp_path: Path
) -> None:
    script = [_SCRIPT, "--steps", str(_STEPS), "--step-seconds", "0.05"]
    with fault_world(("node-1", "node-2"), script, "--nnodes", "2") as world:
        if generation == 1:
            world.hold("start")
            world.launch()
        else:
            world.launch()
            world.training()
            world.hold("start")
            world.kill_process(world.members()[-1])
        world.until("ranks that wait", lambda: _offered(world, generation) != 0)
        with _taken(_offered(world, generation)):
            world.hold("")
            world.ends_well(alone(tmp_path, [_SCRIPT, "--steps", str(_STEPS)]))
        assert world.fleet.job().generation > generation
        assert "Address already in use" in world.fleet.logs()


def _offered(world: FaultWorld, generation: int) -> int:
    """Return the port that the ranks of a generation were told; 0 before."""
    return int(world.rendezvous().get(generation, ":0").rpartition(":")[2])
