"""The newest stored step of a job is damaged: another fleet goes on from the one before it."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.counting import PATIENCE_S, ended, latest_step, launch, said
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(280)


def _launch(fleet: RealFleet, stored: Path, *options: str) -> None:
    fleet.launcher_options = ("--persist", str(stored), "--persist-every", "5", *options)
    launch(fleet, size=1 << 18, step_seconds=0.05)


def _flip(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-1000, os.SEEK_END)
        byte = opened.read(1)
        opened.seek(-1000, os.SEEK_END)
        opened.write(bytes([byte[0] ^ 1]))


def _shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 8)


@pytest.mark.parametrize(
    "damage",
    [_flip, *(pytest.param(way, marks=pytest.mark.long) for way in (_shorten, Path.unlink))],
)
def test_a_job_whose_newest_stored_step_is_bad_goes_on_from_an_older_one(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    stored = tmp_path / "stored"
    with running_fleet("node-1") as fleet:
        _launch(fleet, stored)
        fleet.until("steps in storage", PATIENCE_S, lambda: latest_step(stored) >= 20)
        for launcher in fleet.launchers.values():
            launcher.process.send_signal(signal.SIGTERM)
        fleet.until("the end", PATIENCE_S, lambda: ended(fleet))
    newest = latest_step(stored)
    folder = stored / JOB / json.loads((stored / JOB / "latest").read_bytes())["folder"]
    damage(folder / "rank-0.safetensors")
    with running_fleet("node-1") as fleet:
        _launch(fleet, stored, "--continue")
        fleet.until("more steps", PATIENCE_S, lambda: latest_step(stored) > newest)
        restored = [rank["restored"] for rank in said(fleet).values()]
        assert all(rank["whole"] for rank in said(fleet).values())
        assert len(restored) == 1
        assert restored[0] is not None, fleet.logs()
        assert 0 < restored[0] < newest
        events = fleet.everstep("job", JOB).stdout + fleet.everstep("snapshots", JOB).stdout
        print(events)
