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


def _wait(*_: object) -> None:
    ctypes.PyDLL(None).sleep(_FOR_EVER_S)


def _compute(*_: object) -> None:
    collections.deque(itertools.repeat(0), maxlen=0)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _wait)
    signal.signal(signal.SIGUSR2, _compute)
    del sys.argv[0]
    runpy.run_path(str(Path(__file__).with_name(sys.argv[0])), run_name="__main__")
