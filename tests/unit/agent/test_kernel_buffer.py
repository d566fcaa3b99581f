"""The kernel's buffer by the system call: what is new in it, and what was lost."""

import errno
import os
from collections.abc import Sequence

import pytest

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.probes.kernel.kernel_buffer import BufferLog, is_full, may_read
from everstep_agent.probes.kernel.kernel_log import Position

_SIZE = 1 << 17


def _line(second: int, text: str = "words", priority: int = 6) -> str:
    return f"<{priority}>[{second:5d}.000000] {text}"


class _Buffer:
    """A buffer of the kernel, as the call reads it."""

    def __init__(self, lines: Sequence[str] = (), size: int = _SIZE) -> None:
        self.lines, self.size, self.read = list(lines), size, list[int]()

    def __call__(self, action: int, size: int) -> bytes:
        if action == 10:
            return str(self.size).encode()
        self.read.append(size)
        found: list[str] = []
        for line in reversed(self.lines):
            if sum(len(one) + 1 for one in (*found, line)) > size:
                break
            found.insert(0, line)
        return "".join(f"{one}\n" for one in found).encode()


def _texts(log: BufferLog) -> list[str]:
    return [line.text for line in log.drain().lines]


def test_a_first_read_takes_what_is_left_and_the_next_what_has_come() -> None:
    buffer = _Buffer([_line(1), _line(2, "oops", priority=3)])
    log = BufferLog("boot-1", Position(), buffer)
    batch = log.drain()
    assert batch.lines[1] == KernelLine("oops", level=3, boot_ns=2_000_000_000, waited=True)
    assert log.position == Position("boot-1/syslog", 2_000_000)
    buffer.lines.append(_line(3, "news"))
    assert log.drain().lines == (KernelLine("news", level=6, boot_ns=3_000_000_000),)
    assert _texts(log) == []
    # Of the buffer only its end is read again.
    assert buffer.read == [_SIZE, 16384, 16384]


def test_another_agent_judges_only_what_came_since() -> None:
    buffer = _Buffer([_line(1), _line(2)])
    log = BufferLog("boot-1", Position("boot-1/syslog", 1_000_000), buffer)
    batch = log.drain()
    assert (len(batch.lines), len(batch.earlier)) == (1, 1)
    for source in ("boot-0/syslog", "boot-1"):
        assert len(BufferLog("boot-1", Position(source, 1), buffer).drain().lines) == 2


def test_two_lines_of_one_moment_are_both_told() -> None:
    buffer = _Buffer([_line(1, "first")])
    log = BufferLog("boot-1", Position(), buffer)
    log.drain()
    buffer.lines.append(_line(1, "second"))
    assert _texts(log) == ["second"]


def test_more_than_the_end_is_read_where_much_has_come() -> None:
    buffer = _Buffer([_line(1)])
    log = BufferLog("boot-1", Position(), buffer)
    log.drain()
    buffer.lines += [_line(second, "x" * 200) for second in range(2, 202)]
    batch = log.drain()
    assert (len(batch.lines), batch.lost) == (200, 0)


def test_lines_that_were_overwritten_are_counted_and_those_that_were_cleared_are_not() -> None:
    buffer = _Buffer([_line(1)], size=4096)
    log = BufferLog("boot-1", Position(), buffer)
    log.drain()
    buffer.lines = [_line(second, "x" * 100) for second in range(2, 30)]
    assert log.drain().lost == 1
    buffer.lines = [_line(31, "after dmesg -C")]
    batch = log.drain()
    assert (batch.lost, [line.text for line in batch.lines]) == (0, ["after dmesg -C"])


def test_a_buffer_is_full_by_its_bytes_or_by_the_number_of_its_records() -> None:
    assert is_full(["x" * 2047], 4096)
    assert is_full(["x"] * 64, 4096)
    assert not is_full(["x" * 100] * 10, 4096)


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("<12>[    1.000000] NVRM: Xid", KernelLine("NVRM: Xid", True, 4, 1_000_000_000)),
        ("<3>[    1.500000][   T12] words", KernelLine("words", False, 3, 1_500_000_000)),
        ("<3>[    1.500000][    C0] words", KernelLine("words", False, 3, 1_500_000_000)),
        ("<6>words", KernelLine("words", False, 6)),
        ("<6>[    1.000000] a\tb\x1bc", KernelLine("a b c", False, 6, 1_000_000_000)),
        ("what nobody knows", KernelLine("what nobody knows", True)),
    ],
)
def test_lines_in_each_form_that_a_kernel_writes(raw: str, line: KernelLine) -> None:
    (found,) = BufferLog("boot-1", Position(), _Buffer([raw])).drain().lines
    assert (found.text, found.injected, found.level, found.boot_ns) == (
        line.text,
        line.injected,
        line.level,
        line.boot_ns,
    )


def test_a_process_that_writes_a_line_of_two_does_not_speak_for_the_kernel() -> None:
    # The kernel puts the record's own priority before each of its lines.
    raw = ["<12>[    1.000000] words", "<12>[    1.000000] <0>[    1.000000] NVRM: Xid"]
    batch = BufferLog("boot-1", Position(), _Buffer(raw)).drain()
    assert all(line.injected for line in batch.lines)


def test_who_may_not_read_it_is_told() -> None:
    def refuse(action: int, size: int) -> bytes:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    assert not may_read(refuse)
    assert may_read(_Buffer([_line(1)]))
    with pytest.raises(PermissionError):
        BufferLog("boot-1", Position(), refuse).drain()
