"""Runs a script that knows nothing of it, and holds the interpreter's lock when a signal comes.

    hanging.py SCRIPT [ARGUMENT ...]

No Python code runs in the process any more: after SIGUSR1 it waits in a C library for what never
comes, after SIGUSR2 it computes in a loop that never ends.
"""

import collections
import ctypes
import itertools
import runpy
import signal
import sys
from pathlib import Path

_FOR_EVER_S = 3600


def run(script: str, *arguments: str) -> None:
    """Run a script of this folder."""
    signal.signal(signal.SIGUSR1, _wait)
    signal.signal(signal.SIGUSR2, _compute)
    sys.argv[:] = [script, *arguments]
    runpy.run_path(str(Path(__file__).with_name(script)), run_name="__main__")


def _wait(*_: object) -> None:
    ctypes.PyDLL(None).sleep(_FOR_EVER_S)


def _compute(*_: object) -> None:
    collections.deque(itertools.repeat(0), maxlen=0)


if __name__ == "__main__":
    run(*sys.argv[1:])
