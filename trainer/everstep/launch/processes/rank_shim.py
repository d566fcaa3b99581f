"""Shim: becomes a rank that dies with its launcher: ``rank_shim.py LAUNCHER_PID COMMAND …``.

A child process sets its own death signal and then executes the command, so the launcher needs no
code between fork and exec. Run by path with ``python -I -S``: it imports nothing of the job's.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
# What a shell returns for a command that it cannot execute.
_CANNOT_EXECUTE = 126


def main(arguments: list[str]) -> int:
    """Execute the command; return only when that is impossible."""
    launcher, command = int(arguments[0]), arguments[1:]
    # The signal comes when the parent *thread* ends: the launcher spawns from its main thread.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        print(f"everstep: prctl: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return _CANNOT_EXECUTE
    if os.getppid() != launcher:  # it died before the call above
        return _CANNOT_EXECUTE
    # Where Yama lets a process be read by its ancestors only, the launcher's readers may read this
    # one; it outlives the execution. An error means that there is no Yama.
    libc.prctl(_PR_SET_PTRACER, launcher, 0, 0, 0)
    # CPython ignores SIGPIPE for itself and would pass that on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"everstep: {command[0]}: {error.strerror}", file=sys.stderr)
        return _CANNOT_EXECUTE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
