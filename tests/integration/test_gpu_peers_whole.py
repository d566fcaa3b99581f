"""A GPU at low clocks beside its peers: from a driver's answer to what an operator reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.client.admin import list_nodes
from fakes.nvml import FakeDriver
from integration.real_fleet import JOB, Place, RealFleet, running_fleet

# What is judged are two of three minutes of samples; test_gpu_peers.py proves the rest in seconds.
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_NODES = tuple(f"node-{number}" for number in range(1, 6))
_LOW = "GpuClocksBelowPeers"


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[dict[str, FakeDriver]]:
    """Yield a driver with two busy GPUs for each node."""
    found = {}
    for name in _NODES:
        (tmp_path / name).mkdir()
        found[name] = FakeDriver(tmp_path / name, gpus=2)
    yield found
    for driver in found.values():
        driver.close()


@pytest.fixture
def fleet(drivers: dict[str, FakeDriver]) -> Iterator[RealFleet]:
    places = {
        name: Place(enter=("env", *(f"{key}={value}" for key, value in one.environment.items())))
        for name, one in drivers.items()
    }
    with running_fleet(*_NODES, places=places) as running:
        yield running


def _findings(fleet: RealFleet) -> set[tuple[str, str]]:
    return {
        (node.node, finding.condition)
        for node in list_nodes(fleet.admin).nodes
        for finding in fleet.detail(node.node).findings
        if finding.owner == "controller"
    }


def test_a_low_clock_is_told_with_its_numbers_and_the_command_that_swaps_the_node(
    fleet: RealFleet, drivers: dict[str, FakeDriver]
) -> None:
    script = [str(_TRAINING), "--steps", "100000", "--step-seconds-min", "0.2"]
    fleet.launch_script(script, nodes="4")
    fleet.until("a job with a spare", 90, lambda: len(fleet.job().spares) == 1)
    fleet.until("steps", 90, lambda: fleet.step() > 3)
    low = fleet.job().members[1]
    drivers[low].set(1, sm_clock=1230)
    fleet.until("it is found", 400, lambda: (low, _LOW) in _findings(fleet))
    assert _findings(fleet) == {(low, _LOW)}
    detail = fleet.detail(low)
    (found,) = [one for one in detail.findings if one.condition == _LOW]
    assert "0000:3c:00.0: SM clock 1,230 MHz beside 1,980 MHz of 7 peers since 2" in found.evidence
    assert f"everstep drain {low} --reason" in detail.swap_plan
    for shown in (("job", JOB), ("why", low), ("events",)):
        assert f"everstep drain {low} --reason" in " ".join(fleet.everstep(*shown).stdout.split())
