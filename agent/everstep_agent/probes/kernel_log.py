"""Kernel log probe: /dev/kmsg, or a file that somebody writes kernel lines to."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everstep_agent.detectors.kernel import KernelLine

# The kernel never hands over a longer record (CONSOLE_EXT_LOG_MAX).
_RECORD_BYTES = 8192
# One drain takes at most this much, so that a flood cannot keep the thread for ever.
_RECORDS_MAX = 5000
_FILE_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log was read: sequence in the kernel's buffer, or inode and offset in a file."""

    source: str = ""
    place: int = -1


@dataclass(frozen=True, slots=True)
class KernelBatch:
    """The lines since the last read, and how many were overwritten before they could be read."""

    lines: tuple[KernelLine, ...] = ()
    lost: int = 0


class KernelLog(Protocol):
    """Whatever hands over the kernel messages that came since the last call."""

    @property
    def position(self) -> Position:
        """Return how far was read, to go on from there after a restart."""
        ...

    def drain(self) -> KernelBatch:
        """Return the new messages, oldest first. Raises OSError."""
        ...


def kernel_log(path: Path, boot_id: str, position: Position) -> KernelLog:
    """Return the log at ``path``: the kernel's own, or a followed file."""
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return DeviceLog(path, boot_id, position)
    return FileLog(path, position)


class DeviceLog:
    """The kernel's ring buffer. A first read begins with this boot's oldest line that is left."""

    def __init__(self, path: Path, boot_id: str, position: Position) -> None:
        self._path = path
        self._boot_id = boot_id
        self._sequence = position.place if position.source == boot_id else -1
        self._fd: int | None = None

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._boot_id, self._sequence)

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        if self._fd is None:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        lines: list[KernelLine] = []
        lost = 0
        while len(lines) < _RECORDS_MAX:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Lines were overwritten; the next read begins with the oldest that is left, and
                # the gap shows in its sequence number.
                continue
            lost += self._take(record, lines)
        return KernelBatch(tuple(lines), lost)

    def _take(self, record: bytes, lines: list[KernelLine]) -> int:
        """Add one record "priority,sequence,microseconds,flags;text"; return how many were lost."""
        header, _, text = record.decode(errors="replace").partition(";")
        priority, sequence = (int(field) for field in header.split(",")[:2])
        if sequence <= self._sequence:
            return 0
        lost = sequence - self._sequence - 1 if self._sequence >= 0 else 0
        self._sequence = sequence
        # Facility 0 is the kernel's own, and no process can write it (kmsg(4)).
        lines.append(KernelLine(text.split("\n", 1)[0], injected=priority >> 3 != 0))
        return lost


class FileLog:
    """A file of kernel lines, followed like ``tail -F``: also when it is replaced or cut short.

    A file that is there at the first read of all is read from its end, for its lines may be old;
    one that appears later from its beginning.
    """

    def __init__(self, path: Path, position: Position) -> None:
        self._path = path
        self._source, self._offset = position.source, max(0, position.place)
        if not self._source:
            self._source, self._offset = self._end_of_file()
        self._rest = b""

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._source, self._offset - len(self._rest))

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        try:
            with self._path.open("rb") as file:
                data = self._read(file.fileno())
        except FileNotFoundError:
            return KernelBatch()
        *complete, self._rest = (self._rest + data).split(b"\n")
        lines = (line.decode(errors="replace") for line in complete if line)
        return KernelBatch(tuple(KernelLine(line) for line in lines))

    def _read(self, fd: int) -> bytes:
        status = os.fstat(fd)
        source = f"{status.st_dev}:{status.st_ino}"
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
        return f"{status.st_dev}:{status.st_ino}", status.st_size
