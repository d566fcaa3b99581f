"""Injection guard: a process that continues what the agent had stopped when the agent is killed.

A successor does the same, but nobody knows when there will be one.
"""

import os
import subprocess
import sys
from contextlib import suppress

from everstep_agent.injections.stopping import go_on
from everstep_agent.ipc.line_process import PidfdExits
from everstep_agent.ipc.processes import ProcessIdentity

_EXIT_S = 5.0


class Guard:
    """Is told of each process before it is stopped; the end of its input is the agent's end."""

    def __init__(self) -> None:
        """Start it. Raises OSError."""
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", __name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # What ends the agent from a terminal must not end it as well.
            start_new_session=True,
        )

    def note(self, process: ProcessIdentity) -> None:
        """Have a process go on when this agent is gone. Raises OSError when there is no guard."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), b"%d %d\n" % (process.pid, process.start_ticks))

    async def end(self) -> None:
        """End it, and see it go."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not await PidfdExits().within(self._process, _EXIT_S):
            self._process.kill()


def main() -> None:
    """Wait for the agent's end."""
    noted: set[ProcessIdentity] = set()
    for line in sys.stdin.buffer:
        with suppress(ValueError):  # the last line of an agent that was killed may be torn
            pid, start_ticks = line.split()
            noted.add(ProcessIdentity(int(pid), int(start_ticks)))
    go_on(noted)


if __name__ == "__main__":
    main()
