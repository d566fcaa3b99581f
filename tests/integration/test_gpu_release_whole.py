"""Device memory that outlives a rank: the next one comes when it is free, or on another node."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.client.admin import list_nodes
from fakes.nvml import FakeDriver
from integration.real_fleet import JOB, Place, RealFleet, running_fleet

# Twenty seconds each; test_gpu_release.py proves the agent's part in one.
pytestmark = [pytest.mark.timeout(240), pytest.mark.long]
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_NODES = ("node-1", "node-2")
_GIB = 1 << 30
_KEPT_S = 2.0


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[dict[str, FakeDriver]]:
    """Yield a driver with an unused GPU for each node."""
    found = {}
    for name in _NODES:
        (tmp_path / name).mkdir()
        found[name] = FakeDriver(tmp_path / name, gpus=1)
        found[name].set(0, memory_used=0)
    yield found
    for driver in found.values():
        driver.close()


def _fleet(drivers: dict[str, FakeDriver], *jobs_lines: str) -> Iterator[RealFleet]:
    places = {
        name: Place(enter=("env", *(f"{key}={value}" for key, value in one.environment.items())))
        for name, one in drivers.items()
    }
    with running_fleet(*_NODES, places=places, jobs_lines=jobs_lines) as fleet:
        yield fleet


@pytest.fixture
def patient(drivers: dict[str, FakeDriver]) -> Iterator[RealFleet]:
    yield from _fleet(drivers)


@pytest.fixture
def impatient(drivers: dict[str, FakeDriver]) -> Iterator[RealFleet]:
    yield from _fleet(drivers, "device_release_timeout_s = 3.0")


def _lose_rank(fleet: RealFleet, drivers: dict[str, FakeDriver]) -> str:
    """Have a job of one node and a spare lose its rank, whose memory stays; return its node."""
    script = [str(_TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"]
    fleet.launch_script(script, nodes="1")
    fleet.until("a job with a spare", 60, lambda: len(fleet.job().spares) == 1)
    fleet.until("steps", 60, lambda: fleet.step() > 3)
    (member,) = fleet.job().members
    rank = fleet.rank(member)
    assert rank is not None
    drivers[member].set(0, memory_used=60 * _GIB)
    drivers[member].set_processes(0, [(rank.pid, 60 * _GIB)])
    os.kill(rank.pid, signal.SIGKILL)
    return member


def _findings(fleet: RealFleet) -> set[tuple[str, str]]:
    return {
        (node.node, finding.condition)
        for node in list_nodes(fleet.admin).nodes
        for finding in fleet.detail(node.node).findings
    }


def test_a_rank_starts_again_on_its_gpu_when_its_memory_is_free(
    patient: RealFleet, drivers: dict[str, FakeDriver]
) -> None:
    member = _lose_rank(patient, drivers)
    patient.until("its ranks are stopped", 30, lambda: patient.job().state == "stopping")
    until_s = time.monotonic() + _KEPT_S
    patient.until("it waits", 30, lambda: time.monotonic() > until_s)
    assert (patient.job().state, patient.job().generation) == ("stopping", 1)
    drivers[member].set(0, memory_used=0)
    drivers[member].set_processes(0, [])
    patient.until("it runs again", 60, lambda: patient.job().state == "running")
    assert list(patient.job().members) == [member]
    assert (member, "GpuMemoryLeft") not in _findings(patient)


def test_a_spare_takes_the_place_of_a_node_whose_gpu_does_not_become_free(
    impatient: RealFleet, drivers: dict[str, FakeDriver]
) -> None:
    member = _lose_rank(impatient, drivers)
    (spare,) = (name for name in _NODES if name != member)
    impatient.until("the spare runs", 60, lambda: list(impatient.job().members) == [spare])
    impatient.until("it is told", 60, lambda: (member, "GpuMemoryLeft") in _findings(impatient))
    why = impatient.everstep("why", JOB).stdout
    assert "memory of its devices is still in use: gpu/0000:3b:00.0" in why
    states = {node.node: node.state for node in list_nodes(impatient.admin).nodes}
    assert states[member] == "suspect"
    drivers[member].set(0, memory_used=0)
    drivers[member].set_processes(0, [])
    left = (member, "GpuMemoryLeft")
    impatient.until("it is over", 60, lambda: left not in _findings(impatient))
