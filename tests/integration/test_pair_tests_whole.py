"""Pair tests by hand, with real agents whose GPUs are of the fake drivers: their time is exact."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.cuda import FakeCuda
from fakes.nvml import FakeDriver
from integration.real_fleet import Place, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(280)
_NODES = ("node-1", "node-2", "node-3")
_ALLOWED = ("fault_injection = true",)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RealFleet]:
    """Yield three nodes with a GPU each, on which nothing runs."""
    drivers, places = [], {}
    for name in _NODES:
        (tmp_path / name).mkdir()
        driver = FakeDriver(tmp_path / name, gpus=1)
        driver.set(0, memory_used=0, processes=0)
        drivers.append(driver)
        cuda = FakeCuda(tmp_path / name)
        variables = (driver.environment | cuda.environment).items()
        places[name] = Place(enter=("env", *(f"{key}={value}" for key, value in variables)))
    try:
        with running_fleet(*_NODES, places=places, agent_lines=_ALLOWED) as fleet:
            yield fleet
    finally:
        for driver in drivers:
            driver.close()


def _pair(fleet: RealFleet, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return fleet.everstep("check", *arguments)


def _decided(fleet: RealFleet, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Test until that says something: on a busy machine the work may not be done in time."""
    told = _pair(fleet, *arguments)
    for _ in range(4):
        if "was not done in time" not in told.stdout:
            break
        told = _pair(fleet, *arguments)
    return told


def test_work_that_is_more_on_one_node_is_found_marked_and_told(fleet: RealFleet) -> None:
    never = _pair(fleet, "node-1")
    assert (never.returncode, "never tested" in never.stdout) == (2, True)

    fleet.everstep("inject", "node-1", "slow-work:20%", "--for", "10m")
    slow = _decided(fleet, "node-1", "--pair", "node-2", "--json")
    assert slow.returncode == 1, slow.stdout + slow.stderr
    told = json.loads(slow.stdout)
    assert (told["outcome"], told["injected"]) == ("slow", True)
    by_work = {row["work"]: row for row in told["rows"]}
    compute = by_work["gpu0 compute"]
    assert int(compute["node_ns"]) / int(compute["partner_ns"]) == pytest.approx(1.2, rel=0.01)
    assert compute["partner"] == "node-2"
    # Nothing but the kernel is made more on a GPU; what the host takes depends on this machine.
    memory = by_work["gpu0 memory"]
    assert int(memory["node_ns"]) == pytest.approx(int(memory["partner_ns"]), rel=0.01)
    findings = {one.condition: one for one in fleet.detail("node-1").findings}
    assert findings["PairTestSlow"].injected

    shown = _pair(fleet, "node-1")
    assert shown.returncode == 1
    assert "node-1 is slower than node-2 and node-3" in shown.stdout
    assert fleet.replay().returncode == 0

    fleet.launch(steps=100_000, step_s=0.05)
    fleet.until("steps", 120, lambda: fleet.step() > 3)
    refused = _pair(fleet, "node-1", "--pair")
    assert refused.returncode == 2
    said = " ".join(refused.stdout.split())
    assert "anks of train run on node-1, and no job is stopped for it" in said
    unknown = _pair(fleet, "node-9", "--pair")
    assert (unknown.returncode, "no node named 'node-9'" in unknown.stderr) == (2, True)
