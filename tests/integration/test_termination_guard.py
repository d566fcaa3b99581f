"""Ranks that a SIGTERM reaches which their whole job step gets, or nobody but they."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from everstep.launch.generation import EndNotice
from fakes.readable import becomes_readable
from integration.trainer_job import environment

_GUARDED = """
import ctypes, multiprocessing, os, signal, subprocess, sys, time
from everstep.rank.termination import TerminationGuard
assert TerminationGuard.install() is not None
"""
_WAITS = _GUARDED + "print('ready', flush=True)\nwhile True: time.sleep(60)"
# Nothing of Python runs in its main thread any more.
_IN_NATIVE_CODE = _GUARDED + (
    "print('ready', flush=True)\nwhile True: ctypes.CDLL(None).usleep(60_000_000)"
)
_CHILDREN = (
    _GUARDED
    + """
forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
forked.start()
started = subprocess.Popen(["sleep", "600"])
time.sleep(0.1)
for one in (forked, started):
    one.terminate()
forked.join(1.5)
print(forked.exitcode, started.wait(), flush=True)
"""
)
_OWN_HANDLER = """
import signal, sys
from everstep.rank.termination import TerminationGuard
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
assert TerminationGuard.install() is None
print('ready', flush=True)
signal.pause()
"""


@pytest.fixture
def notice() -> Iterator[EndNotice]:
    """What the launcher of these ranks says; nothing yet."""
    pipe = EndNotice()
    yield pipe
    pipe.close()


@contextmanager
def rank(script: str, notice: EndNotice) -> Iterator["subprocess.Popen[str]"]:
    """Start a rank, and yield it when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(**notice.environment()),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() in ("ready", "-15 -15")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def lives_for(process: "subprocess.Popen[str]", seconds: float) -> bool:
    """Return whether a process does not end in that time."""
    pidfd = os.pidfd_open(process.pid)
    try:
        return not becomes_readable(pidfd, seconds)
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("script", [_WAITS, _IN_NATIVE_CODE])
def test_a_signal_to_the_whole_step_ends_a_rank_when_the_launcher_says_so(
    notice: EndNotice, script: str
) -> None:
    with rank(script, notice) as process:
        process.send_signal(signal.SIGTERM)  # ranks may get it first
        notice.hold()
        process.send_signal(signal.SIGTERM)
        assert lives_for(process, 2.5)
        notice.end()
        assert process.wait(10) == -signal.SIGKILL


def test_a_signal_to_one_rank_alone_ends_it_as_ever(notice: EndNotice) -> None:
    with rank(_WAITS, notice) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM


def test_the_launchers_own_signal_ends_a_rank_at_once(notice: EndNotice) -> None:
    with rank(_WAITS, notice) as process:
        notice.end()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (-signal.SIGTERM, -signal.SIGKILL)


def test_what_a_rank_has_started_can_be_terminated_as_ever(notice: EndNotice) -> None:
    with rank(_CHILDREN, notice):
        pass


def test_a_script_that_handles_the_signal_is_left_alone(notice: EndNotice) -> None:
    with rank(_OWN_HANDLER, notice) as process:
        notice.hold()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7
    with rank(_OWN_HANDLER, notice) as process:
        notice.end()
        assert lives_for(process, 0.3)
