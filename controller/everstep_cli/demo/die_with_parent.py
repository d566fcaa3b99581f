"""Wrapper of a process: it ends when its parent does; run as a file, standard library only.

The demo has threads (gRPC, the display), so it must not run code between fork and exec; this file
does it on the other side of the exec.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def main(arguments: list[str]) -> None:
    """Run ``PARENT PROGRAM ARGUMENT…``: die with PARENT, which may be dead already."""
    parent, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the demo is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
