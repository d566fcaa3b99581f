"""What is left of a job: nothing after success; after a failure its memory, for a while."""

import contextlib
import os
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from integration.counting import PATIENCE_S, ended, latest_step, launch, said
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(240)
_STEPS = 40


def _snapshot_memory(fleet: RealFleet) -> dict[str, int]:
    """Return how many pieces of snapshot memory each agent has open."""
    return {name: _memfds(child.process.pid) for name, child in fleet.agents.items()}


def _memfds(pid: int) -> int:
    folder, count = Path(f"/proc/{pid}/fd"), 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            count += os.readlink(folder / name).startswith("/memfd:everstep")
    return count


def _children(fleet: RealFleet) -> set[int]:
    agents = [child.process.pid for child in fleet.agents.values()]
    return reaper.descendants(agents, reaper.parents())


def _train(fleet: RealFleet, stored: Path, exit_code: int) -> None:
    options = ("--persist", str(stored), "--persist-every", "10", "--max-restarts", "1")
    fleet.launcher_options = options
    launch(fleet, size=1 << 20, steps=_STEPS, step_seconds=0.05, exit_code=exit_code)
    fleet.until("memory that is in use", PATIENCE_S, lambda: any(_snapshot_memory(fleet).values()))
    fleet.until("the end", PATIENCE_S, lambda: ended(fleet) and fleet.job().state == "ended")


def _no_litter(stored: Path) -> None:
    job = stored / JOB
    assert latest_step(stored) >= _STEPS - 15
    kept = {"latest", ".lock", ".everstep-id"}
    assert {path.name for path in job.iterdir() if not path.name.startswith("gen-")} <= kept
    left = [
        path for path in job.rglob("*") if path.name.endswith(".tmp") or ".removed" in str(path)
    ]
    assert not left
    for step in job.glob("gen-*/step-*"):
        assert (step / "manifest.json").exists(), f"{step} is no whole step, and nobody removes it"


def test_a_job_that_succeeded_leaves_only_its_stored_steps(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with running_fleet("node-1", "node-2") as fleet:
        before = _children(fleet)
        _train(fleet, stored, exit_code=0)
        assert all(rank["ended"] for rank in said(fleet).values())
        fleet.until("no memory", PATIENCE_S, lambda: not any(_snapshot_memory(fleet).values()))
        fleet.until("no child", PATIENCE_S, lambda: not _children(fleet) - before)
        _no_litter(stored)


def test_a_job_that_failed_leaves_its_memory_until_it_is_forgotten(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with running_fleet("node-1", "node-2") as fleet:
        before = _children(fleet)
        _train(fleet, stored, exit_code=3)
        fleet.until("no child", PATIENCE_S, lambda: not _children(fleet) - before)
        assert all(_snapshot_memory(fleet).values())
        told = fleet.everstep("job", JOB, "forget")
        assert told.returncode == 0, told.stderr
        fleet.until("no memory", PATIENCE_S, lambda: not any(_snapshot_memory(fleet).values()))
        _no_litter(stored)
