"""A job with storage that ends well has its last step there, also when none was due."""

import json
import signal
from pathlib import Path

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

_TIMEOUT_S = 60


@pytest.mark.timeout(240)
def test_the_last_step_of_a_job_that_ends_well_is_in_storage(tmp_path: Path) -> None:
    with running_fleet("node-1", "node-2") as fleet:
        fleet.launcher_options = ("--persist", str(tmp_path), "--persist-seconds", "100000")
        fleet.launch(steps=30, step_s=0.02)
        fleet.until("the end", _TIMEOUT_S, lambda: _over(fleet))
        assert _latest(tmp_path) == (1, 29)
        said = fleet.launchers["node-1"].log.read_text(encoding="utf-8")
        assert "its last step is being brought to storage" in said
        assert fleet.job().state == "ended"
        # So the next job of the name has the model, and what is left to do is nothing.
        fleet.launch(steps=35, step_s=0.02)
        fleet.until("the second end", _TIMEOUT_S, lambda: _over(fleet))
        assert fleet.first_steps() == {1: 0, 2: 30}
        assert _latest(tmp_path) == (2, 34)


@pytest.mark.timeout(240)
def test_a_launcher_whose_job_has_not_begun_waits_for_no_step_to_be_stored(tmp_path: Path) -> None:
    with running_fleet("node-1") as fleet:
        fleet.launcher_options = ("--persist", str(tmp_path))
        fleet.launch_on("node-1", ["unused.py"], nodes="2")
        launcher = fleet.launchers["node-1"]
        fleet.until("its job", _TIMEOUT_S, lambda: fleet.job().state == "forming")
        launcher.process.send_signal(signal.SIGTERM)
        fleet.until("its end", _TIMEOUT_S, lambda: launcher.process.poll() is not None)
        assert launcher.process.poll() == 128 + signal.SIGTERM
        assert "to be stored" not in launcher.log.read_text(encoding="utf-8")


def _latest(folder: Path) -> tuple[int, int]:
    latest = json.loads((folder / JOB / "latest").read_text(encoding="utf-8"))
    generation, step = latest["folder"].split("/")
    return int(generation.removeprefix("gen-")), int(step.removeprefix("step-"))


def _over(fleet: RealFleet) -> bool:
    return all(child.process.poll() == 0 for child in fleet.launchers.values())
