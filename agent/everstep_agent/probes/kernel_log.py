"""Kernel log probe: /dev/kmsg, or a file that somebody writes kernel lines to."""

import os
import stat
from collections.abc import Callable
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
    """The lines since the last read, and how many were overwritten before they could be read.

    ``earlier`` are still in the kernel's buffer, but an agent before this one has judged them.
    ``absent`` says why there is no log: a fact, no error.
    """

    lines: tuple[KernelLine, ...] = ()
    lost: int = 0
    earlier: tuple[KernelLine, ...] = ()
    absent: str = ""


class KernelLog(Protocol):
    """Whatever hands over the kernel messages that came since the last call."""

    @property
    def position(self) -> Position:
        """Return how far was read, to go on from there after a restart."""
        ...

    def drain(self) -> KernelBatch:
        """Return the new messages, oldest first. Raises OSError, and ValueError for nonsense."""
        ...


def kernel_log(path: Path, boot_id: str, position: Position) -> KernelLog:
    """Return the log at ``path``: the kernel's own, or a followed file."""
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return DeviceLog(path, boot_id, position)
    return FileLog(path, position)


class DeviceLog:
    """The kernel's ring buffer. A first read begins with this boot's oldest line that is left."""

    def __init__(
        self,
        path: Path,
        boot_id: str,
        position: Position,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._path = path
        self._read = read
        self._boot_id = boot_id
        self._sequence = position.place if position.source == boot_id else -1
        self._fd: int | None = None

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._boot_id, self._sequence)

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        fd = self._fd = self._open() if self._fd is None else self._fd
        lines: list[KernelLine] = []
        earlier: list[KernelLine] = []
        lost = 0
        for _ in range(_RECORDS_MAX):
            try:
                record = self._read(fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Lines were overwritten; the next read begins with the oldest that is left, and
                # the gap shows in its sequence number.
                continue
            sequence, line = _parse(record)
            if sequence <= self._sequence:
                earlier.append(line)
                continue
            lost += sequence - self._sequence - 1 if self._sequence >= 0 else 0
            self._sequence = sequence
            lines.append(line)
        return KernelBatch(tuple(lines), lost, tuple(earlier))

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            why = "reading it takes the capability CAP_SYSLOG"
            raise PermissionError(error.errno, why, str(self._path)) from error


def _parse(record: bytes) -> tuple[int, KernelLine]:
    """Return sequence and message of "priority,sequence,microseconds,flags;text"."""
    header, _, text = record.decode(errors="replace").partition(";")
    priority, sequence, microseconds = (int(field) for field in header.split(",")[:3])
    line = KernelLine(
        text=text.split("\n", 1)[0],
        # Facility 0 is the kernel's own, and no process can write it (kmsg(4)).
        injected=priority >> 3 != 0,
        level=priority & 7,
        boot_ns=microseconds * 1000,
    )
    return sequence, line


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
            return KernelBatch(absent=f"{self._path} does not exist")
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
