"""Signals that a batch system announces the end of its time with."""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from everstep_common.reports import GenerationFinished, GenerationStopped, LauncherLeft, RankExited
from fakes.inherited_signals import ignored, ignoring
from integration.trainer_job import Job, joined_job

QUIET = "import time; print('ready', flush=True); time.sleep(600)"
# Says when it is ready, and ends well when it is told.
HANDLING = (
    "import os, signal, sys, time\n"
    "def told(number, frame):\n"
    "    print('told', signal.Signals(number).name)\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGUSR1, told)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)


STUBBORN = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)
# Saves on Ctrl-C, as scripts in a notebook or under torchrun do.
CATCHING = (
    "import time\n"
    "try:\n"
    "    print('ready', flush=True)\n"
    "    time.sleep(600)\n"
    "except KeyboardInterrupt:\n"
    "    print('saved')"
)


def ready(job: Job, ranks: int) -> None:
    """Return when all ranks have said that they can be told."""
    assert job.launcher.stdout
    for _ in range(ranks):
        assert job.launcher.stdout.readline().endswith("ready\n")


def say(job: Job, sentence: str) -> None:
    """Return when the launcher has said this, among other sentences."""
    assert job.launcher.stderr
    while sentence not in job.launcher.stderr.readline():
        assert job.launcher.poll() is None


def test_ranks_that_handle_a_signal_of_the_launcher_get_it(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", HANDLING) as job:
        job.start(1, ranks=2)
        ready(job, 2)
        job.launcher.send_signal(signal.SIGUSR1)
        job.agent.expect(GenerationFinished)
        code, out, errors = job.end()
    assert code == 0
    assert sorted(out.splitlines()) == ["[0] told SIGUSR1", "[1] told SIGUSR1"]
    assert "everstep: SIGUSR1 is passed on to ranks 0, 1" in errors.splitlines()


def test_nobody_dies_of_a_signal_that_no_rank_handles(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", QUIET) as job:
        job.start(1, ranks=1)
        ready(job, 1)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            job.launcher.send_signal(number)
            say(job, f"{number.name} does nothing: no rank here has a handler for it")
        job.stop(1)
        code, _, _ = job.end()
    assert code == 0


@pytest.mark.parametrize("script", [HANDLING, QUIET])
def test_a_signal_that_the_user_names_ends_the_job_and_is_what_its_ranks_get(
    tmp_path: Path, script: str
) -> None:
    options = ["--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"]
    with joined_job(tmp_path, sys.executable, "-c", script, options=options) as job:
        job.start(1, ranks=1)
        ready(job, 1)
        job.launcher.send_signal(signal.SIGUSR1)
        asked = job.user_ends()
        out, _ = job.launcher.communicate(timeout=30)
    assert asked.reason == "SIGUSR1"
    assert ("[0] told SIGUSR1" in out) == (script == HANDLING)
    assert job.launcher.returncode == 128 + signal.SIGUSR1


def test_a_script_that_saves_on_ctrl_c_hears_it_where_its_user_names_sigint(tmp_path: Path) -> None:
    options = ["--signals-to-handle", "SIGTERM,SIGINT"]
    with joined_job(tmp_path, sys.executable, "-c", CATCHING, options=options) as job:
        job.start(1, ranks=1)
        ready(job, 1)
        job.launcher.send_signal(signal.SIGINT)
        job.user_ends()
        out, _ = job.launcher.communicate(timeout=30)
    assert out.splitlines() == ["[0] saved"]
    assert job.launcher.returncode == 128 + signal.SIGINT


def test_a_job_in_the_background_of_a_script_hears_no_ctrl_c(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with ignoring(signal.SIGINT, signal.SIGHUP):
            job = stack.enter_context(joined_job(tmp_path, sys.executable, "-c", QUIET))
        (rank,) = job.start(1, ranks=1).values()
        ready(job, 1)
        assert ignored(job.launcher.pid) == ignored(rank) == {signal.SIGINT, signal.SIGHUP}
        job.launcher.send_signal(signal.SIGTERM)
        job.user_ends()
        assert job.launcher.wait(30) == 128 + signal.SIGTERM


def test_a_rank_that_is_killed_has_failed_though_the_launchers_parent_asks_for_no_exit_codes(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        with ignoring(signal.SIGCHLD):
            job = stack.enter_context(joined_job(tmp_path, sys.executable, "-c", QUIET))
        (rank,) = job.start(1, ranks=1).values()
        ready(job, 1)
        os.kill(rank, signal.SIGKILL)
        exited = job.agent.expect(RankExited)
        assert isinstance(exited, RankExited)
        assert exited.signal == signal.SIGKILL


def test_ranks_that_a_user_ends_and_that_take_too_long_are_named(tmp_path: Path) -> None:
    options = ["--grace", "0.2"]
    with joined_job(tmp_path, sys.executable, "-c", STUBBORN, options=options) as job:
        job.start(1, ranks=2)
        ready(job, 2)
        job.launcher.send_signal(signal.SIGINT)
        job.agent.expect(LauncherLeft)
        job.agent.expect(GenerationStopped)
        _, errors = job.launcher.communicate(timeout=30)
    assert "killed, for it had not ended 0.2 s after SIGTERM: rank 0, 1; --grace" in errors
    assert errors.splitlines()[-1] == (
        "everstep: job test: left on SIGINT; 0.2 s (--grace) are too few to save a step in"
    )


def test_each_rank_with_a_virtual_local_rank_has_its_own_device(tmp_path: Path) -> None:
    script = (
        "import os; e = os.environ\n"
        "assert (e['LOCAL_RANK'], e['CUDA_VISIBLE_DEVICES']) == ('0', e['RANK']), dict(e)"
    )
    options = ["--virtual-local-rank"]
    with joined_job(tmp_path, sys.executable, "-c", script, options=options) as job:
        job.start(1, ranks=2)
        ended = job.agent.from_launcher.get(timeout=20)
        code, _, errors = job.end()
    assert isinstance(ended, GenerationFinished), errors
    assert code == 0
