"""Runs a script that knows nothing of it, and holds the interpreter's lock when SIGUSR1 comes.

    hanging.py SCRIPT [ARGUMENT ...]

That is how a loop in a C extension looks: no Python code runs in the process any more.
"""

import ctypes
import runpy
import signal
import sys
from pathlib import Path

_FOR_EVER_S = 3600


def _hold_the_lock(*_: object) -> None:
    ctypes.PyDLL(None).sleep(_FOR_EVER_S)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _hold_the_lock)
    del sys.argv[0]
    runpy.run_path(str(Path(__file__).with_name(sys.argv[0])), run_name="__main__")
