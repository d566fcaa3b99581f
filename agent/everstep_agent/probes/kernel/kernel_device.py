"""Kernel log device: reads the kernel's ring buffer of messages, /dev/kmsg."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position

# The kernel never hands over a longer record (CONSOLE_EXT_LOG_MAX).
_RECORD_BYTES = 8192
# One drain takes at most this much, so that a flood cannot keep the thread for ever.
_RECORDS_MAX = 5000
# Bytes that are not printable come as "\x0a" (kmsg(4)); a new line within a message is one of them.
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


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
        self._caught_up = False

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._boot_id, self._sequence)

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        fd = self._fd = self._open() if self._fd is None else self._fd
        drained = _Drained(waited=not self._caught_up)
        for _ in range(_RECORDS_MAX):
            try:
                record = self._read(fd, _RECORD_BYTES)
            except BlockingIOError:
                self._caught_up = True
                return drained.batch()
            except BrokenPipeError:
                # Lines were overwritten; the next read begins with the oldest that is left, and
                # the gap shows in its sequence number.
                continue
            except OSError:
                if not drained.lines:
                    raise
                # Lines that were read before the error are returned; the next read fails again.
                return drained.batch()
            self._sequence = drained.add_record(record, self._sequence)
        return drained.batch(more=True)

    def descriptor(self) -> int | None:
        """See KernelLog."""
        return self._fd

    def has_news(self) -> bool:
        """See KernelLog."""
        return True

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError as error:
            why = "reading it takes the capability CAP_SYSLOG"
            raise PermissionError(error.errno, why, str(self._path)) from error


@dataclass(slots=True)
class _Drained:
    """What one drain has read so far."""

    # They were there when the agent began to read.
    waited: bool
    lines: list[KernelLine] = field(default_factory=list)
    earlier: list[KernelLine] = field(default_factory=list)
    lost: int = 0

    def add_record(self, record: bytes, known: int) -> int:
        """Add a record; return the sequence up to which is read, ``known`` before it."""
        try:
            sequence, line, goes_on = _parse(record)
        except ValueError:
            self.lost += 1
            return known
        line = replace(line, waited=self.waited) if self.waited else line
        if sequence <= known:
            self.earlier.append(line)
            return known
        self.lost += sequence - known - 1 if known >= 0 else 0
        if goes_on and self.lines:
            first = self.lines.pop()
            line = replace(first, text=first.text + line.text)
        self.lines.append(line)
        return sequence

    def batch(self, more: bool = False) -> KernelBatch:
        """Return it."""
        return KernelBatch(tuple(self.lines), self.lost, tuple(self.earlier), more=more)


def _parse(record: bytes) -> tuple[int, KernelLine, bool]:
    """Return sequence, message of "priority,sequence,microseconds,flags;text", and if it goes on.

    A record with the flag "+" goes on where the one before it ended. Raises ValueError.
    """
    header, _, text = record.decode(errors="replace").partition(";")
    priority, sequence, microseconds, *flags = header.split(",")
    text = text.split("\n", 1)[0]
    if "\\x" in text:
        text = _ESCAPED.sub(_unescaped, text)
    line = KernelLine(
        text=text,
        # Facility 0 is the kernel's own, and no process can write it (kmsg(4)).
        injected=int(priority) >> 3 != 0,
        level=int(priority) & 7,
        boot_ns=int(microseconds) * 1000,
    )
    return int(sequence), line, bool(flags) and "+" in flags[0]


def _unescaped(match: re.Match[str]) -> str:
    letter = chr(int(match[1], 16))
    return letter if letter.isprintable() and letter.isascii() else " "
