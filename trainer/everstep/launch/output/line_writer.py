"""Line writer: one stream of a rank as lines, to the terminal, to a file and to a callback."""

import contextlib
import errno
import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everstep.launch.output.last_traceback import LastTraceback
from everstep.launch.output.log_files import open_log
from everstep.launch.output.terminal import Terminal
from everstep_common.clock import boot_ns

# A line that never ends is shown in pieces of this size, so it cannot fill the memory.
_LINE_BYTES_MAX = 1024 * 1024
# Lines that are shown of a rank that printed no traceback.
_LAST_LINES = 40
# Of a longer line only the beginning and the end are kept: a traceback may begin at its end.
_KEPT_BYTES_MAX = 8 * 1024
# A progress bar returns to the beginning of its line. What ends a piece may go on in the next.
_END = re.compile(rb"(\r\n|\n|\r(?!\Z))")


@dataclass(frozen=True, slots=True)
class LineDestination:
    """Destination of a stream's lines; with no log file, and not shown, lines are only searched."""

    prefix: bytes
    is_error: bool
    shown: bool = True
    log: Path | None = None


class LineWriter:
    """Turns the bytes of one rank's stream into prefixed lines; keeps the last ones."""

    def __init__(
        self,
        terminal: Terminal,
        place: LineDestination,
        look: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """``look`` is called with every line."""
        self._terminal = terminal
        self._place = place
        self._look = look
        self._partial = b""
        self._shown = place.shown
        self._log: IO[bytes] | None = None
        if place.log is not None:
            self._open(place.log)
        self._overwritten = False
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self.traceback = LastTraceback()

    def write(self, data: bytes) -> None:
        """Take what the rank wrote."""
        self._keep(data)
        *pieces, self._partial = _END.split(self._partial + data)
        for line, end in zip(pieces[::2], pieces[1::2], strict=True):
            self._take(line, end)
        if len(self._partial) > _LINE_BYTES_MAX:
            self._finish_line()

    def close(self) -> None:
        """Show a last line that has no end."""
        self._finish_line()
        self._close_log()

    def _open(self, path: Path) -> None:
        try:
            self._log = os.fdopen(open_log(path), "ab", buffering=0)
        except OSError as error:  # without a log rather than without a rank
            self._without_log(path, error)

    def _keep(self, data: bytes) -> None:
        if self._log is None or self._place.log is None:
            return
        try:
            while data:
                if not (count := self._log.write(data)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[count:]  # a disk that is nearly full takes a part
        except OSError as error:  # a full disk must not stop the job
            self._close_log()
            self._without_log(self._place.log, error)

    def _without_log(self, path: Path, error: OSError) -> None:
        """Show output that no file takes, though it was meant for files only."""
        self._shown = True
        self._terminal.say_once(
            f"{path.parent} takes no more output ({error.strerror}); all of it is shown here"
        )

    def _close_log(self) -> None:
        if self._log:
            with contextlib.suppress(OSError):  # where the last write is told late
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
        self.last_lines.append(_kept(line))
        if self._place.is_error and not self._overwritten:
            self.traceback.add_line(self.last_lines[-1], boot_ns())
        self._look(line)
        if self._shown:
            shown_end = b"\r" if self._overwritten else b"\n"
            self._terminal.line(self._place.prefix + line, shown_end, to_error=self._place.is_error)


def _kept(line: bytes) -> str:
    if len(line) <= _KEPT_BYTES_MAX:
        return line.decode(errors="replace")
    half = _KEPT_BYTES_MAX // 2 - 2
    begins, ends = line[:half].decode(errors="replace"), line[-half:].decode(errors="replace")
    return f"{begins} … {ends}"
