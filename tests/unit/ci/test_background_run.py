"""The tests themselves, run under nohup or in the background of a script."""

import signal
import subprocess
import sys
from pathlib import Path

from fakes.inherited_signals import ignored, ignoring

_ROOT = Path(__file__).parents[3]
_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def test_a_process_of_a_test_ignores_nothing_that_a_terminal_sends() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert ignored(process.pid) == set()


def test_processes_of_tests_are_the_same_when_the_tests_run_in_the_background() -> None:
    test = f"{__file__}::{test_a_process_of_a_test_ignores_nothing_that_a_terminal_sends.__name__}"
    with ignoring(*_TERMINAL):
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", test],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
    # What ends a terminal or comes from it does not end the tests, however far they are.
    for number in _TERMINAL:
        run.send_signal(number)
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 0, out
