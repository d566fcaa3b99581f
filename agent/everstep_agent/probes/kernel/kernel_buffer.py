"""Kernel log buffer by the system call syslog(2): for where the device /dev/kmsg is refused.

A container's device cgroup refuses the device to all but privileged pods, and the call asks only
for the capability CAP_SYSLOG. It tells no sequence and wakes nobody: the buffer is read again, and
what follows the last line that is known is new.
"""

import ctypes
import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position

# syslog(2): SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER.
_READ_ALL, _SIZE_BUFFER = 3, 10
# Between two looks a node logs a few lines; the whole buffer is read where these are not enough.
_TAIL_BYTES = 16 << 10
# The kernel keeps a record for each 32 bytes of its buffer (printk_ringbuffer: average size).
_BYTES_PER_RECORD = 32
_FULL = 0.5
# "<6>[   12.345678] text", with CONFIG_PRINTK_CALLER "<6>[   12.345678][  T1] text"; without
# printk.time the brackets are missing.
_LINE = re.compile(r"<(\d+)>(?:\[ *(\d+)\.(\d{6})\](?:\[ *[TC]\d+\])? )?(.*)", re.DOTALL)

Call = Callable[[int, int], bytes]


class BufferLog:
    """The kernel's buffer. A first read begins with this boot's oldest line that is left."""

    def __init__(self, boot_id: str, position: Position, call: Call | None = None) -> None:
        self._call = call or call_syslog
        # Not the boot's id alone: by that, the device's sequences are remembered.
        self._source = f"{boot_id}/syslog"
        known = position.source == self._source
        # Microseconds after the boot, of the last line that an agent has judged.
        self._time_us = position.place if known else -1
        # The line itself, as it was read; "" before the first read.
        self._last = ""
        self._size = 0

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return Position(self._source, self._time_us)

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        self._size = self._size or _number(self._call(_SIZE_BUFFER, 0))
        if not self._last:
            return self._first()
        lines = _whole_lines(self._call(_READ_ALL, _TAIL_BYTES))
        since = lines_after(lines, self._last)
        if since is None:
            lines = _whole_lines(self._call(_READ_ALL, self._size))
            since = lines_after(lines, self._last)
        lost = 1 if since is None and is_full(lines, self._size) else 0
        found = lines if since is None else since
        self._remember(found)
        return KernelBatch(tuple(map(_parse, found)), lost)

    def descriptor(self) -> int | None:
        """See KernelLog."""
        return None

    def has_news(self) -> bool:
        """See KernelLog."""
        return True

    def _first(self) -> KernelBatch:
        known_us = self._time_us
        found = _whole_lines(self._call(_READ_ALL, self._size))
        read = [replace(_parse(line), waited=True) for line in found]
        is_new = [known_us < 0 or (line.boot_ns or 0) // 1000 > known_us for line in read]
        self._remember(found)
        return KernelBatch(
            lines=tuple(line for line, new in zip(read, is_new, strict=True) if new),
            earlier=tuple(line for line, new in zip(read, is_new, strict=True) if not new),
        )

    def _remember(self, lines: Sequence[str]) -> None:
        if lines:
            self._last = lines[-1]
            told_ns = _parse(self._last).boot_ns
            self._time_us = self._time_us if told_ns is None else told_ns // 1000


def may_read(call: Call | None = None) -> bool:
    """Return whether this process may read the buffer by the call."""
    try:
        (call or call_syslog)(_READ_ALL, 64)
    except OSError:
        return False
    return True


def lines_after(lines: Sequence[str], last: str) -> Sequence[str] | None:
    """Return what follows the last line that is known; None where that is not there."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place] == last:
            return lines[place + 1 :]
    return None


def is_full(lines: Sequence[str], size: int) -> bool:
    """Return whether a buffer is so full that lines were overwritten.

    One with little in it was cleared (dmesg -C): nothing of what is judged was lost by that.
    """
    bytes_used = sum(len(line) + 1 for line in lines)
    return bytes_used >= size * _FULL or len(lines) * _BYTES_PER_RECORD >= size * _FULL


def call_syslog(action: int, size: int) -> bytes:
    """Make the call; return what it has read, or its result as text. Raises OSError."""
    buffer = ctypes.create_string_buffer(size) if size else None
    result = int(ctypes.CDLL(None, use_errno=True).klogctl(action, buffer, size))
    if result < 0:
        number = ctypes.get_errno()
        takes = ": reading it takes the capability CAP_SYSLOG" * (number == errno.EPERM)
        raise OSError(number, f"syslog(2): {os.strerror(number)}{takes}")
    return str(result).encode() if buffer is None else buffer.raw[:result]


def _number(text: bytes) -> int:
    return int(text or b"0")


def _whole_lines(text: bytes) -> list[str]:
    """Return the records: the kernel hands over whole ones only, each with its priority."""
    found = text.decode(errors="replace").split("\n")
    return [line for line in found if line]


def _parse(line: str) -> KernelLine:
    """Return a line without what it is preceded by; of another form, the line as it is."""
    matched = _LINE.fullmatch(line)
    if matched is None:
        return KernelLine(line, injected=True)
    priority, seconds, microseconds, text = matched.groups()
    boot_ns = None if seconds is None else (int(seconds) * 1_000_000 + int(microseconds)) * 1000
    return KernelLine(
        text="".join(one if one.isprintable() and one.isascii() else " " for one in text),
        # Facility 0 is the kernel's own, and no process can write it (kmsg(4)).
        injected=int(priority) >> 3 != 0,
        level=int(priority) & 7,
        boot_ns=boot_ns,
    )
