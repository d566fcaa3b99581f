"""One stream of a rank as lines: to the terminal, to a file, and looked at on the way."""

import contextlib
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everstep.launch.output.terminal import Terminal
from everstep_common.clock import boot_ns

# A line that never ends is shown in pieces of this size, so it cannot fill the memory.
_LINE_BYTES_MAX = 1024 * 1024
# Enough for a traceback.
_LAST_LINES = 40
# A progress bar returns to the beginning of its line. What ends a piece may go on in the next.
_END = re.compile(rb"(\r\n|\n|\r(?!\Z))")
_TRACEBACK = b"Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stream's lines go; without a log file, and not shown, they are still looked at."""

    prefix: bytes
    is_error: bool
    shown: bool = True
    log: Path | None = None


class LineWriter:
    """Turns the bytes of one rank's stream into prefixed lines; keeps the last ones."""

    def __init__(
        self,
        terminal: Terminal,
        place: Place,
        look: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """``look`` is called with every line."""
        self._terminal = terminal
        self._place = place
        self._look = look
        self._partial = b""
        self._log = _opened(place.log) if place.log else None
        # What was to be in a file only, and is in none, is shown rather than lost.
        self._shown = place.shown or (place.log is not None and self._log is None)
        self._overwritten = False
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        # When the newest traceback began: a process may take long to die of it.
        self.traceback_boot_ns: int | None = None

    def write(self, data: bytes) -> None:
        """Take what the rank wrote."""
        if self._log:
            with contextlib.suppress(OSError):  # a full disk must not stop the job
                self._log.write(data)
        *pieces, self._partial = _END.split(self._partial + data)
        for line, end in zip(pieces[::2], pieces[1::2], strict=True):
            self._take(line, end)
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
            self._take(self._partial.rstrip(b"\r"), b"\n")
            self._partial = b""

    def _take(self, line: bytes, end: bytes) -> None:
        if end == b"\r" and not line:
            return  # a bar that is about to be drawn
        if self._overwritten:
            self.last_lines.pop()
        self._overwritten = end == b"\r"
        self.last_lines.append(line.decode(errors="replace"))
        if _TRACEBACK in line[:200]:
            self.traceback_boot_ns = boot_ns()
        self._look(line)
        if self._shown:
            shown_end = b"\r" if self._overwritten else b"\n"
            self._terminal.line(self._place.prefix + line, shown_end, to_error=self._place.is_error)


def _opened(path: Path) -> IO[bytes] | None:
    with contextlib.suppress(OSError):  # without a log rather than without a rank
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab", buffering=0)
    return None
