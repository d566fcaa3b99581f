"""The kernel's ring buffer: gaps, what an earlier agent has judged, and what is worth showing."""

import asyncio
import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import (
    KernelDetector,
    KernelLine,
    XidSettings,
    worth_showing,
)
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.rules.line import began_ns
from everstep_agent.kernel_messages import LINES_MAX, RecentKernelMessages
from everstep_agent.probes.kernel.kernel_device import DeviceLog
from everstep_agent.probes.kernel.kernel_file import FileLog
from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.sources.kernel_log import kernel_log
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_proto.generated import fleet_pb2

_NO_NEWS = BlockingIOError(errno.EAGAIN, "no news")
_OVERWRITTEN = BrokenPipeError(errno.EPIPE, "overwritten")


def _record(sequence: int, text: str = "words", priority: int = 6) -> bytes:
    return f"{priority},{sequence},{sequence * 1000},-;{text}\n SUBSYSTEM=pci\n".encode()


def _device(tmp_path: Path, *reads: bytes | OSError, position: Position | None = None) -> DeviceLog:
    """Return a log whose reads come out one after another."""
    path = tmp_path / "kmsg"
    path.touch()
    script: Iterator[bytes | OSError] = iter(reads)

    def read(_fd: int, _size: int) -> bytes:
        answer = next(script)
        if isinstance(answer, OSError):
            raise answer
        return answer

    return DeviceLog(path, "boot-1", position or Position(), read)


def test_a_first_read_takes_what_is_left_of_this_boot_and_counts_no_loss(tmp_path: Path) -> None:
    log = _device(tmp_path, _record(700), _record(701, "oops", priority=3), _NO_NEWS)
    batch = log.drain()
    assert [line.text for line in batch.lines] == ["words", "oops"]
    assert (batch.lost, batch.earlier) == (0, ())
    assert batch.lines[1] == KernelLine("oops", level=3, boot_ns=701_000_000, waited=True)
    assert log.position == Position("boot-1", 701)


def test_lines_that_waited_for_the_agent_are_told_from_those_that_came_since(
    tmp_path: Path,
) -> None:
    reads = (_record(1), _NO_NEWS, _OVERWRITTEN, _record(2), _NO_NEWS)
    log = _device(tmp_path, *reads)
    assert [line.waited for _ in range(2) for line in log.drain().lines] == [True, False]


def test_a_line_has_its_own_time_only_where_it_is_older_than_its_clock_may_be_wrong() -> None:
    second_ns, day_ns = 10**9, 86_400 * 10**9
    old = KernelLine("Xid", boot_ns=3600 * second_ns, waited=True)
    assert began_ns(old, 3661 * second_ns) == 3600 * second_ns
    assert began_ns(old, 3660 * second_ns) is None
    assert began_ns(replace(old, boot_ns=30 * day_ns), 30 * day_ns + 2000 * second_ns) is None
    assert began_ns(replace(old, boot_ns=29 * day_ns), 30 * day_ns) == 29 * day_ns
    assert began_ns(replace(old, waited=False), day_ns) is None
    assert began_ns(replace(old, boot_ns=None), day_ns) is None


def test_a_fatal_line_of_yesterday_is_found_today_as_one_of_yesterday() -> None:
    hour_ns = 3600 * 10**9
    book, now = FindingBook(CONDITIONS), Stamp("boot-1", 26 * hour_ns, 100 * hour_ns)
    line = KernelLine("nvme nvme0: Removing after probe failure status: -19", boot_ns=2 * hour_ns)
    detector = KernelDetector(XidSettings())
    for one in (replace(line, waited=True), line):
        told = detector.judge(detector.prefilter([one]), DriverTruth(), now)
        book.enter_judgements(told, now)
    (known,) = book.open_findings
    assert (known.since.boot_ns, known.since.wall_ns) == (2 * hour_ns, 76 * hour_ns)
    assert known.since.boot_id == "boot-1"


def test_lines_that_were_overwritten_are_counted_and_reading_goes_on(tmp_path: Path) -> None:
    log = _device(tmp_path, _record(1), _NO_NEWS, _OVERWRITTEN, _record(9), _record(10), _NO_NEWS)
    assert log.drain().lost == 0
    batch = log.drain()
    assert batch.lost == 7
    assert len(batch.lines) == 2


def test_a_log_that_is_overwritten_again_and_again_keeps_nobody(tmp_path: Path) -> None:
    log = _device(tmp_path, *[_OVERWRITTEN] * 10_000)
    assert log.drain().lines == ()


def test_what_an_agent_before_has_judged_is_shown_and_not_judged_again(tmp_path: Path) -> None:
    known = Position("boot-1", 2)
    log = _device(tmp_path, *map(_record, (1, 2, 3)), _NO_NEWS, position=known)
    batch = log.drain()
    assert [line.boot_ns for line in batch.earlier] == [1_000_000, 2_000_000]
    assert [line.boot_ns for line in batch.lines] == [3_000_000]


def test_a_position_of_another_boot_means_nothing(tmp_path: Path) -> None:
    log = _device(tmp_path, _record(1), _NO_NEWS, position=Position("boot-0", 5))
    assert len(log.drain().lines) == 1


def test_a_log_that_does_not_exist_is_a_fact(tmp_path: Path) -> None:
    assert "does not exist" in kernel_log(tmp_path / "no", "boot", Position()).drain().absent


def test_a_followed_file_knows_neither_level_nor_time(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "kmsg", Position())
    (tmp_path / "kmsg").write_text("words\n")
    assert log.drain().lines == (KernelLine("words"),)


def test_a_file_that_is_rotated_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    path, old = tmp_path / "kmsg", tmp_path / "kmsg.1"
    log = FileLog(path, Position())
    path.write_text("first\nha")
    read = [log.drain()]
    path.rename(old)
    with old.open("a") as file:
        file.write("lf\nlast without an end")
    path.write_text("new\n")
    while not read or read[-1].lines or read[-1].more:
        read.append(log.drain())
    texts = [line.text for batch in read for line in batch.lines]
    assert texts == ["first", "half", "last without an end", "new"]


def test_a_log_that_was_something_else_for_a_while_is_followed_again(tmp_path: Path) -> None:
    path = tmp_path / "syslog"
    path.write_text("")
    log = FileLog(path, Position())
    assert log.drain().lines == ()
    path.unlink()
    os.mkfifo(path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="it is no file, and cannot be followed"):
            log.drain()
    assert len(os.listdir("/proc/self/fd")) == before
    path.unlink()
    path.write_text("back\n")
    assert [line.text for line in log.drain().lines] == ["back"]


def test_a_process_that_quotes_the_kernel_in_a_relayed_log_is_not_believed(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "kern.log", Position())
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    begin = "Nov  3 12:00:01 gpu-1"
    written = (f"{begin} bob: {xid}", f"{begin} bob: kernel: {xid}", f"{begin} a b: {xid}")
    (tmp_path / "kern.log").write_text("".join(f"{line}\n" for line in written))
    assert log.drain().lines == ()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (KernelLine("words", level=4), True),
        (KernelLine("words", level=5), False),
        (KernelLine("words"), True),
        (KernelLine("NVRM: Xid (PCI:0000:3b:00): 4242, something new", level=6), True),
        (KernelLine("EXT4-fs (vda1): Remounting filesystem read-only", level=6), True),
    ],
)
def test_warnings_and_what_a_detector_reads_are_worth_showing(
    line: KernelLine, shown: bool
) -> None:
    assert worth_showing([line]) == ([line] if shown else [])


def test_the_newest_lines_are_sent_together_and_not_for_every_line() -> None:
    async def scenario() -> list[fleet_pb2.KernelMessages]:
        sent: list[fleet_pb2.KernelMessages] = []
        recent = RecentKernelMessages(lambda: Stamp("boot", 5_000, 1_000_000), sent.append)
        task = asyncio.create_task(recent.run())
        recent.add_lines([KernelLine("nothing", level=7)])
        for number in range(100):
            recent.add_lines([KernelLine(f"line {number}", level=3, boot_ns=4_000)])
        await asyncio.sleep(0)
        recent.add_lines([KernelLine("within the pause", level=3)])
        await asyncio.sleep(0)
        task.cancel()
        return sent

    (messages,) = asyncio.run(scenario())
    assert [line.text for line in messages.lines] == [
        f"line {number}" for number in range(100 - LINES_MAX, 100)
    ]
    first = messages.lines[0]
    assert (first.stamp.boot_ns, first.stamp.wall_ns, first.level) == (4_000, 999_000, 3)


def test_the_real_ring_buffer_says_what_was_written_to_it() -> None:
    path, marker = Path("/dev/kmsg"), f"everstep test {os.getpid()} says hello"
    try:
        with path.open("w") as file:
            file.write(f"<5>{marker}\n")
    except OSError as error:
        pytest.skip(f"the sandbox denies: writing /dev/kmsg: {error.strerror}")
    log = kernel_log(path, "boot-1", Position())
    found: list[KernelLine] = []
    while batch := log.drain().lines:
        found += batch
    (line,) = [line for line in found if marker in line.text]
    assert (line.level, line.injected) == (5, True)
    assert line.boot_ns
    again = kernel_log(path, "boot-1", log.position)
    assert marker in "".join(line.text for line in again.drain().earlier[-5000:])
