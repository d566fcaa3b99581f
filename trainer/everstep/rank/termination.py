"""Termination guard: no rank ends by a SIGTERM to its whole job step before its launcher says so.

Slurm sends it to every process of a step at once, and the ranks would be gone before their last
step is saved. The launcher tells by a pipe that nobody reads: it is readable once the launcher has
got the signal as well, and closed when the ranks are to end.
"""

import contextlib
import ctypes
import os
import select
import signal
import threading
from collections.abc import Mapping

# Where the pipe is to be opened: a path below /proc.
VARIABLE = "EVERSTEP_END_NOTICE"
# Within this time the launcher has got a signal that the whole step gets.
_ALONE_S = 2.0


class TerminationGuard:
    """Handler of SIGTERM of a rank whose script has none."""

    def __init__(self, notice: int) -> None:
        """``notice`` is the end of the pipe to look at; it stays open."""
        self._notice = notice
        self._pid = os.getpid()
        self._looks = False
        # One object, by which it is known again.
        self._handler = self._signalled

    @classmethod
    def install(cls, environ: Mapping[str, str] = os.environ) -> "TerminationGuard | None":
        """Guard this process, unless its script sees to the signal itself, or nobody can tell."""
        untouched = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        main = threading.current_thread() is threading.main_thread()
        path = environ.get(VARIABLE)
        if not (path and untouched and main):
            return None
        try:
            notice = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # another namespace of processes, or a launcher that is gone
            return None
        guard = cls(notice)
        guard.begin()
        return guard

    def begin(self) -> None:
        """Take the signal from now on, and watch for the launcher's word."""
        signal.signal(signal.SIGTERM, self._handler)
        signal.siginterrupt(signal.SIGTERM, False)
        # A rank in a collective runs no handler of Python's; a thread beside it does.
        threading.Thread(target=self._watch, name="everstep-end", daemon=True).start()

    def _watch(self) -> None:
        _await(self._notice, 0, None)
        if signal.getsignal(signal.SIGTERM) is self._handler:
            os.kill(self._pid, signal.SIGKILL)

    def _signalled(self, _number: int, _frame: object) -> None:
        if os.getpid() != self._pid or _await(self._notice, 0, 0.0):
            die_of_sigterm()  # a child that was forked, or the launcher's own word
        elif not self._looks:
            self._looks = True
            threading.Thread(target=self._look, name="everstep-term", daemon=True).start()

    def _look(self) -> None:
        """End this rank if nobody but it was meant."""
        if not _await(self._notice, select.POLLIN, _ALONE_S):
            die_of_sigterm()


def die_of_sigterm() -> None:
    """End this process as a SIGTERM does that nobody handles; of any thread."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    with contextlib.suppress(ProcessLookupError):
        os.kill(os.getpid(), signal.SIGTERM)


def _await(pipe: int, events: int, seconds: float | None) -> bool:
    """Return whether the pipe shows one of these events, or is closed, within so many seconds."""
    poll = select.poll()
    poll.register(pipe, events)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
