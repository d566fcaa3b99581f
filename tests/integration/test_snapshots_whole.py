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


def test_the_snapshots_of_a_job_are_shown_while_it_runs_and_dropped_when_it_has_ended(
    fleet: RealFleet,
) -> None:
    stored = fleet.folder / "stored"
    fleet.launcher_options = ("--persist", str(stored), "--persist-every", "5")
    fleet.launch(steps=10_000, step_s=0.05)
    wanted = {"own memory", "peer memory", "shared storage"}
    fleet.until("copies in three tiers", _PATIENCE_S, lambda: _tiers(_snapshots(fleet)) >= wanted)

    table = _snapshots(fleet)
    assert table["state"] == "running"
    assert table["restore_step"] >= table["recoverable_step"] > 0
    assert table["storage"]["path"] == str(stored)
    # Named is what is recoverable when a multiple of 5 is passed.
    assert table["storage"]["step"] >= 5
    shown = fleet.everstep("snapshots", JOB).stdout
    assert "survives the loss of any one node" in shown
    assert "peer memory: all on node-1 node-2" in shown

    for launcher in fleet.launchers.values():
        launcher.process.send_signal(signal.SIGINT)
    fleet.until("the end", _PATIENCE_S, lambda: fleet.job().state == "ended")
    ended = _snapshots(fleet)
    assert ended["restore_step"] is None
    assert "own memory" in _tiers(ended)
    told = fleet.everstep("job", JOB).stdout
    assert f"stored      step {ended['storage']['step']} of generation 1" in told

    dropped = fleet.everstep("job", JOB, "forget")
    assert dropped.returncode == 0, dropped.stderr
    assert "of snapshots dropped from memory on node-1 node-2" in dropped.stdout
    assert f"Its files under {stored} stay" in dropped.stdout
    assert not {"own memory", "peer memory"} & _tiers(_snapshots(fleet))
    assert "no node keeps memory of it" in fleet.everstep("job", JOB, "forget").stdout
    assert (stored / JOB / "latest").exists()
