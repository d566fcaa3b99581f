"""``everstep run --persist``: what the agent is told of it, and how a launcher leaves."""

import os
import signal
import sys
from pathlib import Path

import pytest

from everstep_common.trainer_messages import End, GenerationStopped, LauncherLeft, Notice
from integration.trainer_job import Job, joined_job

WAIT = "import time; time.sleep(600)"


def test_the_agent_is_told_where_and_how_often(tmp_path: Path) -> None:
    options = ("--persist", str(tmp_path / "steps"), "--persist-every", "50", "--persist-keep", "3")
    memory = ("--snapshot-every", "2:9", "--snapshot-memory", "12GiB", "--fresh")
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=(*options, *memory)) as job:
        join = job.join
    assert join.storage is not None
    assert join.storage.path == str(tmp_path / "steps")
    assert (join.storage.every_steps, join.storage.every_ns, join.storage.keep) == (50, 0, 3)
    assert (join.snapshot_every_min, join.snapshot_every_max) == (2, 9)
    assert join.snapshot_bytes == 12 << 30
    assert join.fresh


def _interrupted(job: Job) -> None:
    job.start(1, ranks=1)
    job.launcher.send_signal(signal.SIGTERM)
    job.agent.expect(LauncherLeft)
    job.agent.expect(GenerationStopped)


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    return ("--persist", str(tmp_path / "steps"))


def test_who_leaves_waits_until_the_newest_step_is_stored(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        # It shows what it hears, so it is still there.
        job.agent.tell_launcher(Notice("bringing the newest step to storage"))
        assert job.launcher.stderr is not None
        fd = job.launcher.stderr.fileno()
        shown = b""
        while b"bringing the newest step" not in shown:
            shown += os.read(fd, 4096)
        assert job.launcher.poll() is None
        job.agent.tell_launcher(End(False, "left by its user"))
        assert job.launcher.wait(timeout=20) == 143
    assert b"waiting for the newest step to be stored" in shown


def test_who_leaves_twice_does_not_wait(tmp_path: Path, options: tuple[str, ...]) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        job.launcher.send_signal(signal.SIGINT)
        assert job.launcher.wait(timeout=20) == 143


def test_without_an_agent_nobody_waits(tmp_path: Path, options: tuple[str, ...]) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        job.agent.hang_up()
        assert job.launcher.wait(timeout=20) == 143
