"""A whole fleet stores a job's steps; another one, which has nothing else, goes on from them."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(240)
_PATIENCE_S = 60.0


def _latest(stored: Path) -> dict[str, Any]:
    path = stored / "train/latest"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def _step(stored: Path) -> int:
    target = _latest(stored).get("target")
    return int(target["step"]) if target else -1


def _launch(fleet: RealFleet, stored: Path, *options: str) -> None:
    fleet.launcher_options = ("--persist", str(stored), "--persist-every", "20", *options)
    fleet.launch(steps=100_000, step_s=0.02)


def test_a_job_goes_on_from_storage_after_every_node_is_lost(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with running_fleet("node-1", "node-2") as fleet:
        _launch(fleet, stored)
        fleet.until("steps in storage", _PATIENCE_S, lambda: _step(stored) >= 40)
        reached = fleet.step()
        for launcher in fleet.launchers.values():
            launcher.process.send_signal(signal.SIGTERM)
        ended = fleet.launchers.values()
        fleet.until("the end", _PATIENCE_S, lambda: all(one.exit_code is not None for one in ended))
        # A user who leaves takes the newest step along, and not just the one that was due.
        assert _step(stored) >= reached - 5
    left = _latest(stored)
    assert len(list((stored / "train").glob("gen-*/step-*"))) >= 2
    with running_fleet("node-1", "node-2") as fleet:
        # Another controller: it has given the job in storage no id.
        _launch(fleet, stored)
        ended = fleet.launchers.values()
        fleet.until("the end", _PATIENCE_S, lambda: all(one.exit_code for one in ended))
        assert "use --continue to go on from them" in fleet.logs()
        assert _latest(stored) == left
        _launch(fleet, stored, "--continue")
        fleet.until("more steps", _PATIENCE_S, lambda: _step(stored) > left["target"]["step"])
        assert min(fleet.losses()) == left["target"]["step"] + 1
        assert _latest(stored)["generation"] > left["generation"]
