"""Restart of torchrun in its own process: it cannot start ranks again that had ended well."""

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from everstep.launch.free_port import FreePort
from everstep_common.frames import Channel
from everstep_common.launcher_messages import TO_LAUNCHER, End

_KEPT = "EVERSTEP_TORCHRUN_KEPT"
# An agent that lives hangs up at once when it has heard that the other side does.
_HANG_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class Kept:
    """Descriptors that a torchrun hands to the one that replaces it in the same process; -1: none.

    While the connection to the agent stands, the node has its launcher; and the plan has told the
    port to the other nodes.
    """

    connection: int = -1
    port: int = -1

    @classmethod
    def of(cls, environ: MutableMapping[str, str]) -> "Kept":
        """Return what was left to this process, and take the word of it out of the environment."""
        try:
            connection, port = map(int, environ.pop(_KEPT, "").split(","))
        except ValueError:
            return cls()
        return cls(connection, port)

    def environ(self) -> dict[str, str]:
        """Return the variable that tells of it."""
        return {_KEPT: f"{self.connection},{self.port}"}

    def held_port(self) -> FreePort | None:
        """Return the port; None where none is held."""
        with contextlib.suppress(OSError, ValueError):
            os.set_inheritable(self.port, False)  # a rank that kept it would keep the port taken
            return FreePort(holder=socket.socket(fileno=self.port))
        return None

    def told_meanwhile(self) -> End | None:
        """End the connection; return the job's end, if the agent sent it."""
        with contextlib.suppress(OSError, ValueError):
            kept = socket.socket(fileno=self.connection)
            with contextlib.closing(Channel(kept, TO_LAUNCHER)) as channel:
                # The agent tells whoever joins next what comes from here on; what it sent before is
                # still read.
                kept.shutdown(socket.SHUT_WR)
                while True:
                    message, _ = channel.receive(_HANG_UP_S)
                    if isinstance(message, End):
                        return message
        return None


@dataclass(frozen=True, slots=True)
class Again:
    """Command and variables with which this torchrun was started, before any was changed."""

    command: tuple[str, ...]
    environ: Mapping[str, str]

    @classmethod
    def of(
        cls, torchrun_line: Sequence[str], words: Sequence[str], environ: Mapping[str, str]
    ) -> "Again | None":
        """Return it; None in a program of the user's that uses torchrun as a library."""
        return cls((sys.executable, *words[1:]), dict(environ)) if torchrun_line else None

    def begin(self, kept: Kept) -> NoReturn:
        """Become a new torchrun: same process, same command line. Raises OSError."""
        stays = {0, 1, 2, kept.connection, kept.port}
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one that lists them is closed again
                os.set_inheritable(int(name), int(name) in stays)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
        os.execve(self.command[0], self.command, {**self.environ, **kept.environ()})
