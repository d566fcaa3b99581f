"""The kernel log as a source: woken by a write, the driver asked at once, findings ended by it."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.probes.kernel.file_changes import FileChanges
from everstep_agent.probes.kernel.kernel_device import DeviceLog
from everstep_agent.probes.kernel.kernel_file import FileLog
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position
from everstep_agent.sources.gpus import FreshGpus
from everstep_agent.sources.kernel_log import KernelLogSource, kernel_log
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding

_PCI = "0000:3b:00.0"
_XID_48 = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, words"
# Longer than any test: what is seen before it, was told by an event.
_NEVER_S = 3600.0


def _gpus(action: int | None, error: str = "") -> GpusReading:
    gpu = GpuReading(
        index=0, uuid="GPU-1", name="H100", pci=_PCI, recovery_action=action, error=error
    )
    return GpusReading(driver="570.86.15", gpus=(gpu,))


class Bench:
    """A kernel log file, its source in a watch, and a book."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.path.touch()
        self.seconds = 10_000
        self.view = NodeView()
        self.book = FindingBook(CONDITIONS)
        self.source = KernelLogSource(kernel_log(self.path, "boot-1", Position()), self.view, 10.0)
        self.source.now = self.now
        self.source.open_findings = lambda: self.book.open_findings
        self.source.know(self.book.open_finding)
        self.changed = asyncio.Event()
        findings = Findings(self.book, lambda _: self.changed.set(), lambda _: None, self.now)
        self.watch = Watch((self.source.source(_NEVER_S),), findings)

    def now(self) -> Stamp:
        return Stamp("boot-1", self.seconds * 10**9, self.seconds * 10**9)

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def open(self) -> dict[str, Finding]:
        return {known.finding.condition: known.finding for known in self.book.open_findings}

    async def until(self, happened: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not happened():
                self.changed.clear()
                await self.changed.wait()


def _run(folder: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench(folder)
        task = asyncio.create_task(bench.watch.run())
        try:
            await bench.watch.probe_now()
            await scenario(bench)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_a_line_in_a_followed_file_is_a_finding_without_waiting_for_the_next_look(
    tmp_path: Path,
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(_XID_48)
        bench.write("\n")
        await bench.until(bench.open)
        assert bench.open()["XidFatal"].rule == "Xid table: 48"
        bench.path.rename(bench.path.with_name("old"))
        bench.path.write_text("nfs: server filer-1 not responding, still trying\n")
        await bench.until(lambda: "NfsServerSilent" in bench.open())
        bench.write("nfs: server filer-1 OK\n")
        await bench.until(lambda: "NfsServerSilent" not in bench.open())

    _run(tmp_path, scenario)


def test_more_than_one_drain_takes_is_read_at_once(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(f"{'x' * 99}\n" * 100_000 + f"{_XID_48}\n")
        await bench.until(bench.open)

    _run(tmp_path, scenario)


def test_a_log_that_appears_later_is_read(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.path.unlink()
        bench.path.write_text(f"{_XID_48}\n")
        await bench.until(bench.open)

    _run(tmp_path, scenario)


def test_the_driver_is_asked_at_once_and_decides(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.view.gpus = _gpus(0)

        async def look() -> None:
            bench.view.gpus = _gpus(2)

        bench.source.ask_gpus = FreshGpus(look, bench.view).read
        bench.write(f"{_XID_48}\n")
        await bench.until(bench.open)
        assert bench.open()["XidFatal"].rule == "NVML field 230"
        assert bench.open()["XidFatal"].suggested_action.value == "reboot_node"

    _run(tmp_path, scenario)


def test_a_driver_that_takes_its_time_is_not_waited_for_and_decides_later(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.view.gpus = _gpus(0)
        answered = asyncio.Event()

        async def look() -> None:
            await answered.wait()
            bench.view.gpus = _gpus(2)

        bench.source.ask_gpus = FreshGpus(look, bench.view, 0.01).read
        bench.write(f"{_XID_48}\n")
        await bench.until(bench.open)
        assert bench.open()["XidFatal"].rule == "Xid table: 48"
        answered.set()
        await asyncio.sleep(0)
        await bench.watch.probe_now()
        assert bench.open()["XidFatal"].rule == "NVML field 230"

    _run(tmp_path, scenario)


def test_a_driver_that_is_still_being_asked_is_not_asked_again() -> None:
    async def scenario() -> None:
        view, asked, answered = NodeView(), [], asyncio.Event()

        async def look() -> None:
            asked.append(1)
            await answered.wait()

        fresh = FreshGpus(look, view, 0.01)
        assert await fresh.read() is None
        assert await fresh.read() is None
        assert len(asked) == 1
        answered.set()
        await asyncio.sleep(0)
        # It answered, but the reading is the one from before.
        assert await fresh.read() is None

    asyncio.run(scenario())


def test_an_answer_without_a_wish_ends_the_finding_in_ten_looks(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(f"{_XID_48}\n")
        await bench.until(bench.open)
        for _ in range(9):
            bench.view.gpus = _gpus(0)
            await bench.watch.probe_now()
        assert bench.open()
        # The same answer is no other look.
        await bench.watch.probe_now()
        assert bench.open()
        bench.view.gpus = _gpus(0)
        await bench.watch.probe_now()
        assert not bench.open()

    _run(tmp_path, scenario)


def test_xids_that_nvml_told_are_judged_unless_the_log_says_more(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        from everstep_agent.detectors.kernel import KernelLine

        def told(code: int) -> int:
            line = KernelLine(f"NVRM: Xid (PCI:0000:3b:00): {code}, as NVML told (no text)")
            return len(bench.source.judge_told([line]))

        assert (told(79), told(149)) == (1, 0)
        bench.view.kernel_log = "may not be read"
        assert (told(79), told(149)) == (1, 1)
        assert not bench.source.xids

    _run(tmp_path, scenario)


def test_the_memory_of_xids_is_kept_when_it_changed(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        kept: list[int] = []
        bench.source.on_history = lambda seen: kept.append(len(seen))
        bench.write(f"{_XID_48}\n{_XID_48}\n")
        await bench.until(bench.open)
        await bench.watch.probe_now()
        assert kept == [1]

    _run(tmp_path, scenario)


def test_a_change_of_another_file_in_the_folder_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    changes = FileChanges(path)
    (tmp_path / "other").write_text("x")
    assert not changes.consume_changes()
    path.write_text("x")
    assert changes.consume_changes()
    assert not changes.consume_changes()
    changes.close()


def test_a_file_in_a_folder_that_does_not_exist_is_looked_at_in_turn(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "no" / "kmsg", Position())
    assert log.descriptor() is None
    (tmp_path / "no").mkdir()
    assert log.descriptor() is not None


def test_of_a_relayed_syslog_only_the_kernels_lines_are_read(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "kmsg", Position())
    (tmp_path / "kmsg").write_text(
        f"Nov  3 12:00:01 gpu-1 kernel: [ 12.345678] {_XID_48}\n"
        f"Nov  3 12:00:01 gpu-1 trainer[77]: I saw {_XID_48}\n"
        "Nov  3 12:00:01 gpu-1 sshd[78]: hello\n"
    )
    assert [line.text for line in log.drain().lines] == [
        _XID_48,
        "Nov  3 12:00:01 gpu-1 sshd[78]: hello",
    ]


def test_a_line_that_never_ends_is_read_in_pieces(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "kmsg", Position())
    (tmp_path / "kmsg").write_bytes(b"x" * 100_000)
    assert len(log.drain().lines[0].text) == 8192
    (tmp_path / "kmsg").write_bytes(b"held back")
    assert log.drain() == KernelBatch()


def _device(*records: bytes) -> KernelBatch:
    script = iter(records)

    def read(_fd: int, _size: int) -> bytes:
        try:
            return next(script)
        except StopIteration:
            raise BlockingIOError(errno.EAGAIN, "no news") from None

    return DeviceLog(Path(os.devnull), "boot-1", Position(), read).drain()


def test_what_goes_on_in_the_next_record_is_one_line_and_escapes_are_undone() -> None:
    batch = _device(
        b"4,1,1000,c;NVRM: Xid (PCI:0000:3b:00): 79, GPU has ",
        b"4,2,1001,+;fallen off the bus.",
        b"4,3,1002,-;one\\x0atwo \\xe2\\x1b",
    )
    assert [line.text for line in batch.lines] == [
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "one two   ",
    ]


def test_a_record_that_is_none_counts_as_lost_and_what_was_read_before_a_failure_is_kept() -> None:
    batch = _device(b"4,1,1000,-;words", b"nonsense", b"\xff", b"4,2,1000,-;more")
    assert ([line.text for line in batch.lines], batch.lost) == (["words", "more"], 2)
    script = iter([b"4,1,1000,-;words"])

    def read(_fd: int, _size: int) -> bytes:
        for record in script:
            return record
        raise OSError(errno.EIO, "broken")

    log = DeviceLog(Path(os.devnull), "boot-1", Position(), read)
    assert len(log.drain().lines) == 1
    with pytest.raises(OSError, match="broken"):
        log.drain()


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_the_probe_fail(records: list[bytes]) -> None:
    assert len(_device(*records).lines) <= len(records)


def test_a_flood_of_records_is_read_in_bounded_drains() -> None:
    batch = _device(*(b"4,%d,1,-;words" % number for number in range(6000)))
    assert (len(batch.lines), batch.more) == (5000, True)
