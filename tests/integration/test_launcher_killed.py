"""A launcher that is killed: all that its ranks have started goes with it, and nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.processes.sweeper import VARIABLE
from fakes.waits import wait_until
from integration.test_trainer_launcher import alive
from integration.trainer_job import Job, environment, joined_job

WAIT = "import time; time.sleep(600)"
# A child, one with a session of its own, and one that was forked twice.
_RANK = f"""
import os, subprocess, sys, time
sleep = [sys.executable, "-c", {WAIT!r}]
child = subprocess.Popen(sleep)
session = subprocess.Popen(sleep, start_new_session=True)
reads, writes = os.pipe()
if os.fork() == 0:
    os.setsid()
    if (daemon := os.fork()) == 0:
        os.execv(sys.executable, sleep)
    os.write(writes, str(daemon).encode())
    os._exit(0)
os.wait()
daemon = int(os.read(reads, 20))
with open(sys.argv[1] + os.environ["RANK"] + ".new", "w") as file:
    file.write(f"{{child.pid}} {{session.pid}} {{daemon}}")
os.rename(sys.argv[1] + os.environ["RANK"] + ".new", sys.argv[1] + os.environ["RANK"])
time.sleep(600)
"""


def descendants(job: Job, pids: Path, ranks: int) -> list[int]:
    """Start a generation; return its ranks and all that they have started."""
    started = list(job.start(1, ranks).values())
    files = [Path(f"{pids}{rank}") for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files))
    return started + [int(word) for file in files for word in file.read_text().split()]


# A launcher that was delegated no control group: all that it has is its sweeper.
_LAUNCHER = """
import os, sys, time
from everstep.launch.processes.children import adopt_orphans
from everstep.launch.processes.children import spawn
from everstep.launch.processes.children import Sweeping
adopt_orphans()
sweeping = Sweeping()
os.environ["RANK"] = "0"
rank = spawn([sys.executable, "-c", *sys.argv[1:]], sweeping.environment(os.environ))
print(rank.pid, flush=True)
time.sleep(600)
"""


def sweeper_of(launcher: int) -> int:
    """Return the process that sweeps after a launcher."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"/sweeper.py") for word in words) and str(launcher).encode() in words:
            return int(path.parent.name)
    raise AssertionError("no sweeper")


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of the same user that is in another job, and in no process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], env={**os.environ, VARIABLE: "another launcher's"}
    )
    yield process.pid
    process.kill()
    process.wait()


def test_all_that_ranks_have_started_is_gone_after_a_killed_launcher(
    tmp_path: Path, bystander: int
) -> None:
    pids = tmp_path / "pids"
    with joined_job(tmp_path, sys.executable, "-c", _RANK, str(pids)) as job:
        there = descendants(job, pids, ranks=2)
        assert len(there) == 8
        assert all(map(alive, there))
        sweeper = sweeper_of(job.launcher.pid)
        job.launcher.kill()
        for pid in there:
            wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
        wait_until(lambda: not alive(sweeper))
        _, errors = job.launcher.communicate(timeout=30)
        assert alive(bystander)
    assert f"launcher {job.launcher.pid} was killed" in errors


def test_without_a_control_group_they_are_gone_as_well(tmp_path: Path, bystander: int) -> None:
    pids = tmp_path / "pids"
    launcher = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, _RANK, str(pids)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    there = [int(launcher.stdout.readline())]
    file = Path(f"{pids}0")
    wait_until(file.exists)
    there += map(int, file.read_text().split())
    assert all(map(alive, there))
    launcher.kill()
    launcher.communicate(timeout=30)
    for pid in there:
        wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
    assert alive(bystander)


def test_a_launcher_that_ends_by_itself_leaves_no_sweeper(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with joined_job(tmp_path, sys.executable, "-c", _RANK, str(pids)) as job:
        there = descendants(job, pids, ranks=1)
        sweeper = sweeper_of(job.launcher.pid)
        code, _, errors = job.end()
    assert code == 0
    assert not alive(sweeper)
    assert not any(map(alive, there))
    assert "was killed" not in errors


def test_what_is_sent_to_all_of_the_launchers_processes_does_not_end_the_sweeper(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    with joined_job(tmp_path, sys.executable, "-c", _RANK, str(pids)) as job:
        there = descendants(job, pids, ranks=1)
        sweeper = sweeper_of(job.launcher.pid)
        # Stopped, so that it cannot end anything itself when it is asked to.
        os.kill(job.launcher.pid, signal.SIGSTOP)
        for pid in (sweeper, job.launcher.pid):
            os.kill(pid, signal.SIGTERM)
        job.launcher.kill()
        for pid in there:
            wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
