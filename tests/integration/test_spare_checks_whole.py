"""A real node that waits as a spare, fails its check, and is a spare again when it passes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

# Twenty seconds; test_controller_spare_checks.py proves the part of the controller in one.
pytestmark = [pytest.mark.timeout(200), pytest.mark.long]
_TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_NODES = ("node-1", "node-2")
_STEPS = 100_000


@pytest.fixture
def fleet() -> Iterator[RealFleet]:
    """Yield two nodes; a node that waits is checked each second."""
    with running_fleet(*_NODES, core_lines=("spare_check_interval_s = 1.0",)) as fleet:
        yield fleet


def _detail(fleet: RealFleet) -> admin_pb2.JobDetail:
    return fleet.sheet(JOB)


def _spares(fleet: RealFleet) -> list[str]:
    return list(fleet.job().spares)


def test_a_spare_that_cannot_read_its_probes_is_none_until_it_can(fleet: RealFleet) -> None:
    script = [str(_TRAINING), "--steps", str(_STEPS), "--step-seconds-min", "0.05"]
    fleet.launch_script(script, nodes="1")
    fleet.until("a running job with a spare", 60, lambda: len(_spares(fleet)) == 1)
    fleet.until("steps", 60, lambda: fleet.step() > 3)
    (spare,) = _spares(fleet)
    member = next(name for name in _NODES if name != spare)

    log = fleet.folder / spare / "kernel.log"
    log.unlink()
    log.symlink_to(log)  # nobody can open what leads to itself
    fleet.until("no spare", 60, lambda: _spares(fleet) == [] and bool(_detail(fleet).kept_out))
    (kept,) = _detail(fleet).kept_out
    assert kept.startswith(f"{spare} is no spare: its check failed: probe kernel_log")
    for words in (("nodes",), ("job", JOB), ("why", spare)):
        assert f"{spare} is no spare: its check failed" in fleet.everstep(*words).stdout
    told = fleet.launchers[spare].log
    fleet.until("its user is told", 30, lambda: "is no spare" in told.read_text("utf-8"))
    step = fleet.step()
    fleet.until("nothing that runs is touched", 30, lambda: fleet.step() > step + 3)
    assert (fleet.job().generation, list(fleet.job().members)) == (1, [member])

    log.unlink()
    log.touch()
    fleet.until("a spare again", 60, lambda: _spares(fleet) == [spare])
    assert fleet.everstep("isolate", member, "--reason", "smoke").returncode == 0
    fleet.until("it takes the place", 60, lambda: list(fleet.job().members) == [spare])
    fleet.until("steps there", 60, lambda: fleet.job().state == "running")
