"""Start of the sweeper: the process that ends what ranks have left when the launcher is killed."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from everstep.launch.processes import children
from everstep.launch.processes.generation_group import group_name, own_group
from everstep.launch.processes.sweeper import IGNORED, VARIABLE

_SWEEPER = str(Path(__file__).with_name("sweeper.py"))


class Sweeping:
    """The sweeper of this launcher; without one, a launcher that is killed leaves grandchildren."""

    def __init__(self) -> None:
        """Start it. It is not to be mistaken for something that a rank has left."""
        self._mark = secrets.token_hex(16)
        own = own_group(Path("/proc/self"))
        groups = f"{own}/{group_name(os.getpid(), 0).removesuffix('0')}" if own else ""
        foreign = map(str, children.children())
        words = [str(os.getpid()), self._mark, groups, *foreign]
        # It has these blocked until it ignores them: what is sent to all of a job's processes while
        # its interpreter starts must not end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-I", "-S", _SWEEPER, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Not in reach of what is sent to the launcher's group or comes from its terminal.
                start_new_session=True,
            )
        except OSError:  # no process is to be had: the ranks will say so
            self._process = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment by which the sweeper knows the ranks and all that they start."""
        return {**environ, VARIABLE: self._mark}

    def dismiss(self) -> None:
        """The launcher has seen to everything itself."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
