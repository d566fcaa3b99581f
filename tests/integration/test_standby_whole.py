"""A spare's standbys learn what ranks elsewhere load, and new code runs after a restart.

Real controller, agents, launchers and ranks.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(600)
_PATIENCE_S = 90.0
_LATE = """
import os
VERSION = {version}
open(os.path.join(os.environ["SAID"], f"imported-by-{{os.getpid()}}"), "w").close()
"""
_SCRIPT = """
import os, sys, time
knew = "late" in sys.modules
import everstep
run = everstep.init()
def use():
    import late
    return late.VERSION
said = os.path.join(os.environ["SAID"], str(run.generation))
with open(said + ".new", "w") as file:
    print(knew, use(), file=file)
os.rename(said + ".new", said)
step = 0
while True:
    step += 1
    time.sleep(0.1)
    run.step(step)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("said", "src", "scripts"):
        (tmp_path / name).mkdir()
    (tmp_path / "src" / "late.py").write_text(_LATE.format(version=1))
    (tmp_path / "scripts" / "train.py").write_text(_SCRIPT)
    return tmp_path


@pytest.fixture
def fleet(place: Path) -> Iterator[RealFleet]:
    path = os.pathsep.join((str(place / "src"), *filter(None, sys.path)))
    variables = {"SAID": str(place / "said"), "PYTHONPATH": path}
    with running_fleet("node-1", "node-2", variables=variables) as fleet:
        yield fleet


def _launch(fleet: RealFleet, name: str, script: Path) -> None:
    options = ["--job", JOB, "--nnodes", "1", "--token-file", str(fleet.folder / "token")]
    options += ["--socket", str(fleet.folder / name / "run" / "agent.sock")]
    fleet.start_launcher(name, *options, "--", sys.executable, str(script))


def _has_learned(fleet: RealFleet, name: str, said: Path) -> bool:
    """Return whether a process that waits below a launcher has imported what it was taught."""
    waiting = [
        process.pid
        for process in fleet.owned.below(fleet.launchers[name])
        if "RANK" not in reaper.environment(process.pid)
    ]
    return any((said / f"imported-by-{pid}").exists() for pid in waiting)


def test_a_spare_learns_what_ranks_load_and_new_code_runs_after_a_restart(
    fleet: RealFleet, place: Path
) -> None:
    said, script = place / "said", place / "scripts" / "train.py"
    _launch(fleet, "node-1", script)
    fleet.until("training", _PATIENCE_S, lambda: fleet.job().state == "running")
    _launch(fleet, "node-2", script)
    fleet.until("a preload", _PATIENCE_S, lambda: _has_learned(fleet, "node-2", said))
    drained = fleet.everstep("drain", "node-1", "--reason", "a test")
    assert drained.returncode == 0, drained.stderr
    fleet.until("the spare's turn", _PATIENCE_S, (said / "2").exists)
    assert (said / "2").read_text() == "True 1\n"
    fleet.until("training", _PATIENCE_S, lambda: fleet.job().state == "running")
    (place / "src" / "late.py").write_text(_LATE.format(version=2))
    restarted = fleet.everstep("job", JOB, "restart", "--reason", "new code")
    assert restarted.returncode == 0, restarted.stderr
    fleet.until("the new code's turn", _PATIENCE_S, (said / "3").exists)
    assert (said / "3").read_text().split()[1] == "2"
