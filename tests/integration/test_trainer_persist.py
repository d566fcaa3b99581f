"""``everstep run --persist``: what the agent is told of it, and how a launcher leaves."""

import os
import signal
import sys
from pathlib import Path

import pytest

from everstep_common.launcher_messages import End, Hold, Notice, Stop
from everstep_common.reports import EndAsked, GenerationStopped, LauncherLeft
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


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    return ("--persist", str(tmp_path / "steps"))


def _interrupted(job: Job) -> None:
    """Let a user end the job, and its ranks stop for that; its last step is still to be stored."""
    job.start(1, ranks=1)
    job.launcher.send_signal(signal.SIGTERM)
    asked = job.agent.expect(EndAsked)
    assert isinstance(asked, EndAsked)
    assert 0 < asked.grace_ns < 10_000_000_000
    job.agent.tell_launcher(Stop(1, 0.0, "ended by its user"))
    job.agent.expect(GenerationStopped)


def _shows(job: Job, words: bytes) -> bytes:
    """Return what the launcher writes until it has written some words."""
    assert job.launcher.stderr is not None
    shown = b""
    while words not in shown:
        shown += os.read(job.launcher.stderr.fileno(), 4096)
    return shown


def _last_line(job: Job, code: int) -> str:
    """Return the last words of a launcher that ends with an exit code."""
    _, errors = job.launcher.communicate(timeout=20)
    assert job.launcher.returncode == code, errors
    return errors.splitlines()[-1]


def test_who_ends_a_job_waits_until_its_last_step_is_stored(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        # It shows what it hears, so it is still there.
        job.agent.tell_launcher(Notice("bringing the newest step to storage"))
        shown = _shows(job, b"bringing the newest step")
        assert job.launcher.poll() is None
        job.agent.tell_launcher(End(False, "ended by its user on node-1"))
        assert _last_line(job, 143).endswith("everstep: job test was ended by its user on node-1")
    assert b"SIGTERM: the job ends within 10 s; if it makes snapshots, its last step" in shown


def test_who_ends_a_job_twice_does_not_wait(tmp_path: Path, options: tuple[str, ...]) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        job.launcher.send_signal(signal.SIGINT)
        job.agent.expect(LauncherLeft)
        assert _last_line(job, 130) == (
            "everstep: job test: left on SIGINT; whether its last step is saved is not known:"
            " at once, by another signal"
        )


def test_without_an_agent_nobody_waits(tmp_path: Path, options: tuple[str, ...]) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        _interrupted(job)
        job.agent.hang_up()
        assert _last_line(job, 143) == (
            "everstep: job test: left on SIGTERM; whether its last step is saved is not known:"
            " this node's agent went away before it said so"
        )


def test_a_controller_that_says_nothing_is_not_waited_for_beyond_the_grace(tmp_path: Path) -> None:
    given = ("--grace", "2")
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=given) as job:
        job.start(1, ranks=1)
        job.launcher.send_signal(signal.SIGTERM)
        job.agent.expect(EndAsked)
        job.agent.expect(LauncherLeft)
        job.agent.expect(GenerationStopped)
        assert _last_line(job, 143) == (
            "everstep: job test: left on SIGTERM; whether its last step is saved is not known:"
            " the controller did not say so within 2 s"
        )


def test_a_user_who_does_not_wait_for_storage_is_told_so_last(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    given = (*options, "--grace", "0.5")
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=given) as job:
        job.start(1, ranks=1)
        job.launcher.send_signal(signal.SIGTERM)
        job.agent.expect(LauncherLeft)
        job.agent.expect(GenerationStopped)
        job.launcher.send_signal(signal.SIGINT)
        assert _last_line(job, 143) == (
            "everstep: job test: left on SIGTERM; 0.5 s (--grace) are too few to save a step in;"
            " that its newest step is stored was not waited for"
        )


def test_a_spare_that_was_a_member_waits_for_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        job.start(1, ranks=1)
        job.stop(1)
        job.agent.tell_launcher(Hold("waiting as a spare of test", spare=True))
        _shows(job, b"waiting as a spare")
        job.launcher.send_signal(signal.SIGTERM)
        job.agent.expect(LauncherLeft)
        assert _last_line(job, 143) == "everstep: job test: left on SIGTERM, as a spare of it"


@pytest.mark.parametrize("starts", [True, False], ids=["it runs again", "all wait again"])
def test_one_that_is_no_spare_any_more_waits_for_its_last_step(
    tmp_path: Path, options: tuple[str, ...], starts: bool
) -> None:
    given = (*options, "--grace", "0.5")
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=given) as job:
        job.start(1, ranks=1)
        job.stop(1)
        job.agent.tell_launcher(Hold("waiting as a spare of test", spare=True))
        if starts:
            job.start(2, ranks=1)
        else:
            job.agent.tell_launcher(Hold("waiting for 1 more node", spare=False))
            _shows(job, b"waiting for 1 more node")
        job.launcher.send_signal(signal.SIGTERM)
        job.agent.expect(LauncherLeft)
        _shows(job, b"waiting for the newest step to be stored")
        job.agent.tell_launcher(End(False, "ended by its user on node-1"))
        assert "everstep: job test was ended by its user on node-1" in _last_line(job, 143)
