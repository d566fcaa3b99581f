"""Start of a command: Ctrl-C ends it without a word while its modules are still being loaded.

The parts stand above this package, so they are loaded by name.
"""

import importlib
import signal
from collections.abc import Callable
from typing import cast


def main() -> int:
    """Run ``everstep``; return the exit code."""
    return _start("main")


def agent() -> int:
    """Run ``everstep-agent``; return the exit code."""
    return _start("agent")


def controller() -> int:
    """Run ``everstep-controller``; return the exit code."""
    return _start("controller")


def hear_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again, once all is loaded that handles it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _start(name: str) -> int:
    # One that was inherited as ignored, as in the background of a script, stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = getattr(importlib.import_module("everstep.entry"), name)
    return cast("Callable[[], int]", command)()
