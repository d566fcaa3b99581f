"""What a launcher shows: its ranks' output line by line, and its own sentences."""

import contextlib
import sys
from collections import deque
from pathlib import Path
from typing import IO, BinaryIO

# A line that never ends is shown in pieces of this size, so it cannot fill the memory.
_LINE_BYTES_MAX = 1024 * 1024
# Enough for a traceback.
_LAST_LINES = 40


class Terminal:
    """Standard output and error; a reader that went away does not stop the job."""

    def __init__(
        self, out: BinaryIO = sys.stdout.buffer, error: BinaryIO = sys.stderr.buffer
    ) -> None:
        self._out = out
        self._error = error

    def say(self, sentence: str) -> None:
        """Show a sentence of the launcher itself."""
        self.line(f"everstep: {sentence}".encode(), to_error=True)

    def line(self, line: bytes, *, to_error: bool) -> None:
        """Show a line."""
        stream = self._error if to_error else self._out
        with contextlib.suppress(OSError, ValueError):
            stream.write(line + b"\n")
            stream.flush()


class LineWriter:
    """Turns the bytes of one rank's stream into prefixed lines; keeps the last ones."""

    def __init__(self, terminal: Terminal, rank: int, log: Path | None, *, is_error: bool) -> None:
        self._terminal = terminal
        self._prefix = f"[{rank}] ".encode()
        self._is_error = is_error
        self._partial = b""
        self._log: IO[bytes] | None = None
        if log:
            with contextlib.suppress(OSError):  # without a log rather than without a rank
                log.parent.mkdir(parents=True, exist_ok=True)
                self._log = log.open("ab", buffering=0)
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)

    def write(self, data: bytes) -> None:
        """Take what the rank wrote."""
        if self._log:
            with contextlib.suppress(OSError):  # a full disk must not stop the job
                self._log.write(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._show(line)
        if len(self._partial) > _LINE_BYTES_MAX:
            self._finish_line()

    def close(self) -> None:
        """Show a last line that has no end."""
        self._finish_line()
        if self._log:
            self._log.close()
            self._log = None

    def _finish_line(self) -> None:
        if self._partial:
            self._show(self._partial)
            self._partial = b""

    def _show(self, line: bytes) -> None:
        self.last_lines.append(line.decode(errors="replace").rstrip("\r"))
        self._terminal.line(self._prefix + line, to_error=self._is_error)
