"""End notice: a pipe by which ranks learn that their launcher has got SIGTERM, and that they end.

Nobody reads it: it is readable for all of them from the first word on, and closed at the second.
"""

import os

from everstep.rank.termination import VARIABLE


class EndNotice:
    """Pipe of one generation's ranks."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def environment(self) -> dict[str, str]:
        """Return where ranks find it."""
        return {VARIABLE: f"/proc/{os.getpid()}/fd/{self._read}"}

    def hold(self) -> None:
        """The launcher has got the signal: no rank ends by it before the launcher says so."""
        if self._write >= 0:
            os.write(self._write, b"!")

    def end(self) -> None:
        """The ranks are to end."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def close(self) -> None:
        """No rank is left."""
        self.end()
        if self._read >= 0:
            os.close(self._read)
            self._read = -1
