"""Kernel log file: follows a file with kernel messages, such as a relayed log."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.detectors.kernel.detector import PREFILTER
from everstep_agent.detectors.kernel.logs.log_formats import LogFormats
from everstep_agent.detectors.kernel.rules.rule import LinePrefilter
from everstep_agent.probes.kernel.file_changes import FileChanges
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position

# One drain takes at most this much, so that a flood cannot keep the thread for ever.
_FILE_BYTES_MAX = 4 << 20
# A line is held back until its end is written; one that never ends must not fill the memory.
_LINE_BYTES_MAX = 64 << 10
# The kernel never hands over a longer record (CONSOLE_EXT_LOG_MAX); of a longer line of somebody
# else's the beginning is judged, and no pattern is looked for in megabytes.
_JUDGED_BYTES_MAX = 8 << 10


class FileLog:
    """A file of kernel lines, followed like ``tail -F``: also when it is replaced or cut short.

    A file that is there at the first read of all is read from its end, for its lines may be old;
    one that appears later from its beginning. One that was replaced is read to its end first.
    """

    def __init__(
        self,
        path: Path,
        position: Position,
        parse: Callable[[Sequence[str]], Iterator[KernelLine]] | None = None,
    ) -> None:
        self._path = path
        # Makes messages of a file's lines; that of another program's own log has no other lines.
        self._parse = parse or kernel_lines
        self._source, self._offset = position.source, max(0, position.place)
        if not self._source:
            self._source, self._offset = self._end_of_file()
        self._rest = b""
        # The file that is followed; it stays open when its name belongs to another file by now.
        self._fd = -1
        self._changes: FileChanges | None = None

    def __del__(self) -> None:
        self._follow(-1)

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._source, self._offset - len(self._rest))

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        try:
            fd = self._open()
        except FileNotFoundError:
            return KernelBatch(absent=f"{self._path} does not exist")
        if data := self._end_of_replaced(fd):
            os.close(fd)
            return self._batch(data, more=True)
        self._follow(fd)
        data = self._read(fd)
        return self._batch(data, more=len(data) == _FILE_BYTES_MAX)

    def _open(self) -> int:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            why = "the agent's user may not read it; add that user to the log's group"
            raise PermissionError(error.errno, why, str(self._path)) from error
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no file, and cannot be followed", str(self._path))

    def _batch(self, data: bytes, more: bool) -> KernelBatch:
        *complete, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            complete, self._rest = [*complete, self._rest], b""
        texts = [line[:_JUDGED_BYTES_MAX].decode(errors="replace") for line in complete if line]
        return KernelBatch(tuple(self._parse(texts)), more=more)

    def descriptor(self) -> int | None:
        """See KernelLog."""
        if self._changes is None:
            try:
                self._changes = FileChanges(self._path)
            except OSError:
                # The folder is not there yet, or there are no watches left: looks go on.
                return None
        return self._changes.fileno()

    def has_news(self) -> bool:
        """See KernelLog."""
        return self._changes is not None and self._changes.consume_changes()

    def _follow(self, fd: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd

    def _end_of_replaced(self, fd: int) -> bytes:
        """Return what was written to the file before it was replaced by that of ``fd``."""
        if self._fd < 0 or _source(os.fstat(fd)) == self._source:
            return b""
        try:
            data = os.pread(self._fd, _FILE_BYTES_MAX, self._offset)
        except OSError:
            # It was on storage that is gone: nobody will read its end any more.
            data = b""
        self._offset += len(data)
        # The end of the file ends its last line.
        return data or (b"\n" if self._rest else b"")

    def _read(self, fd: int) -> bytes:
        status = os.fstat(fd)
        source = _source(status)
        if source != self._source or status.st_size < self._offset:
            self._source, self._offset, self._rest = source, 0, b""
        data = os.pread(fd, _FILE_BYTES_MAX, self._offset)
        self._offset += len(data)
        return data

    def _end_of_file(self) -> tuple[str, int]:
        try:
            status = self._path.stat()
        except OSError:
            return "none", 0
        return _source(status), status.st_size


def _source(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def kernel_lines(
    texts: Sequence[str], prefilter: LinePrefilter = PREFILTER
) -> Iterator[KernelLine]:
    """Yield the lines without those of other programs: a relayed syslog has all of them.

    Only lines that a detector may know are taken apart; the others are shown as they are.
    """
    known = set(prefilter.select(texts))
    for place, text in enumerate(texts):
        if place not in known:
            yield KernelLine(text)
            continue
        read = LogFormats().read(text)
        if not read.program:
            yield KernelLine(read.text, read.injected)
