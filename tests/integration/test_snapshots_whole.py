"""`everstep snapshots` and `job NAME forget` on a real job: real controller, agents, trainers."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(180)
_PATIENCE_S = 60.0


@pytest.fixture
def fleet() -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        yield fleet


def _snapshots(fleet: RealFleet) -> dict[str, Any]:
    told = fleet.everstep("snapshots", JOB, "--json")
    if "no job named" in told.stderr:  # its launchers are still joining
        return {"steps": []}
    assert told.returncode == 0, told.stderr
    table: dict[str, Any] = json.loads(told.stdout)
    return table


def _tiers(table: dict[str, Any]) -> set[str]:
    return {tier["tier"] for line in table["steps"] for tier in line["tiers"]}


def _shows_copies(fleet: RealFleet) -> bool:
    shown = fleet.everstep("snapshots", JOB).stdout
    safe = "survives the loss of any one node" in shown
    return safe and "peer memory: all on node-[1-2]" in shown


def _tells_what_is_stored(fleet: RealFleet) -> bool:
    """Return whether both commands tell the same step, once the last one is there."""
    step = _snapshots(fleet)["storage"]["step"]
    return f"stored      step {step} of generation 1" in fleet.everstep("job", JOB).stdout


def test_the_snapshots_of_a_job_are_shown_while_it_runs_and_dropped_when_it_has_ended(
    fleet: RealFleet,
) -> None:
    stored = fleet.folder / "stored"
    fleet.launcher_options = ("--persist", str(stored), "--persist-every", "5")
    fleet.launch(steps=10_000, step_s=0.05)
    wanted = {"own memory", "peer memory", "shared storage"}
    fleet.until("copies in three tiers", _PATIENCE_S, lambda: _tiers(_snapshots(fleet)) >= wanted)
    # Named is what is recoverable when a multiple of 5 is passed.
    fleet.until("a stored step", _PATIENCE_S, lambda: _snapshots(fleet)["storage"]["step"] >= 5)

    table = _snapshots(fleet)
    assert table["state"] == "running"
    assert table["restore_step"] >= table["recoverable_step"] > 0
    assert table["storage"]["path"] == str(stored)
    # Which copies there are changes with every step.
    fleet.until("its copies shown", _PATIENCE_S, lambda: _shows_copies(fleet))

    for launcher in fleet.launchers.values():
        launcher.process.send_signal(signal.SIGINT)
    fleet.until("the end", _PATIENCE_S, lambda: fleet.job().state == "ended")
    ended = _snapshots(fleet)
    assert ended["restore_step"] is None
    assert "own memory" in _tiers(ended)
    fleet.until("the stored step", _PATIENCE_S, lambda: _tells_what_is_stored(fleet))

    # A launcher ends when its node's last step is stored; that may take as long as storage does.
    ends = fleet.launchers.values()
    fleet.until("all gone", _PATIENCE_S, lambda: all(one.exit_code is not None for one in ends))
    dropped = fleet.everstep("job", JOB, "forget")
    assert dropped.returncode == 0, dropped.stderr
    assert "of snapshots dropped from memory on node-[1-2]" in dropped.stdout
    assert f"Its files under {stored} stay" in dropped.stdout
    assert not {"own memory", "peer memory"} & _tiers(_snapshots(fleet))
    assert "no node keeps memory of it" in fleet.everstep("job", JOB, "forget").stdout
    assert (stored / JOB / "latest").exists()
