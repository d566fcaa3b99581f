"""The GPU probe against a real shared library, in a real child process."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.gpus.reading import (
    FabricReading,
    GpuEvent,
    GpuProcess,
    GpuReading,
    GpusReading,
)
from everstep_agent.ipc.line_process import PidfdExits
from everstep_agent.probes.gpus.nvml import (
    COMPLETE_EVERY,
    DriverHangError,
    NvmlDeadlines,
    NvmlProbe,
    ProbeError,
)
from fakes.nvml import FakeDriver

# A driver that answers must not miss its deadline on a busy machine.
_DEADLINES = NvmlDeadlines(first_s=30.0, next_s=30.0)
_IMPATIENT = NvmlDeadlines(first_s=30.0, next_s=0.3)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=8)
    yield fake
    fake.close()


@pytest.fixture
def old_driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=1, old=True)
    yield fake
    fake.close()


def _with_probe(probe: NvmlProbe, scenario: Callable[[NvmlProbe], Awaitable[None]]) -> None:
    async def run() -> None:
        try:
            await scenario(probe)
        finally:
            probe.close()
            leaving = probe._leaving
            if leaving is not None:
                assert await PidfdExits().within(leaving.process, 20.0)

    asyncio.run(run())


async def _times(count: int, probe: NvmlProbe) -> GpusReading:
    for _ in range(count - 1):
        await probe.read()
    return await probe.read()


def test_every_gpu_is_read_completely_at_the_first_look(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        reading = await probe.read()
        assert (reading.driver, reading.library, reading.complete) == ("570.00", "12.570.00", True)
        assert [gpu.pci for gpu in reading.gpus][:2] == ["0000:3b:00.0", "0000:3c:00.0"]
        gpu = reading.gpus[0]
        assert (gpu.name, gpu.temperature_c, gpu.power_w) == ("NVIDIA H100 80GB HBM3", 40.0, 300.0)
        assert (gpu.busy_ratio, gpu.recovery_action, gpu.ecc_corrected) == (0.97, 0, 3)
        assert (gpu.memory_used_bytes, gpu.sm_clock_mhz, gpu.clock_reasons) == (40 << 30, 1980, 0)
        assert (gpu.ecc_enabled, gpu.ecc_corrected_aggregate) == (True, 30)
        assert (gpu.remapped_uncorrected, gpu.remap_banks_exhausted) == (0, 0)
        assert (gpu.retired_single_bit, gpu.retired_pending) == (None, None)
        assert (gpu.temperature_max_c, gpu.thermal_margin_c, gpu.max_tlimit_c) == (87, 47, 0)
        assert (gpu.pcie_generation, gpu.pcie_width, gpu.pcie_replays) == (5, 16, 0)
        assert gpu.fabric == FabricReading(state=3, status=0, health_mask=0xAA, health_summary=1)
        assert (gpu.persistence, gpu.mig_enabled, gpu.processes) == (True, False, ())
        assert gpu.power_limit_w == 700.0
        assert gpu.vbios.startswith("96.")
        assert len(gpu.nvlinks) == 18
        assert all(link.active and link.crc == 0 for link in gpu.nvlinks)

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


def test_what_changes_in_minutes_is_read_at_every_tenth_look_or_when_asked(
    driver: FakeDriver,
) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        driver.set(2, temperature=60, pcie_width=8, ecc_corrected=7)
        reading = await probe.read()
        gpu = reading.gpus[2]
        assert not reading.complete
        assert (gpu.temperature_c, gpu.ecc_corrected, gpu.pcie_width) == (60.0, 7, 16)
        reading = await _times(COMPLETE_EVERY - 1, probe)
        assert (reading.complete, reading.gpus[2].pcie_width) == (True, 8)
        driver.set(2, pcie_width=4)
        probe.complete_soon()
        assert (await probe.read()).gpus[2].pcie_width == 4
        assert not (await probe.read()).complete

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


@pytest.mark.parametrize(
    ("code", "words"),
    [(15, "GPU is lost"), (16, "GPU requires restart"), (999, "Unknown Error")],
)
def test_a_gpu_that_gives_no_answer_keeps_its_name_and_the_others_go_on(
    driver: FakeDriver, code: int, words: str
) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        driver.set(3, error=code)
        reading = await probe.read()
        lost = reading.gpus[3]
        assert (lost.error, lost.error_code, lost.pci) == (words, code, "0000:3e:00.0")
        assert lost.temperature_c is None
        assert reading.gpus[4].temperature_c == 44.0
        driver.set(3, error=0)
        assert (await probe.read()).gpus[3].temperature_c == 43.0

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


def test_a_gpu_that_was_lost_for_long_is_looked_at_by_a_new_process(driver: FakeDriver) -> None:
    now_s = 0.0

    async def scenario(probe: NvmlProbe) -> None:
        nonlocal now_s
        driver.set(3, lost=1)
        await probe.read()
        first = probe._talk
        now_s = 61.0
        await probe.read()
        driver.set(3, lost=0)
        assert not (await probe.read()).gpus[3].error
        assert probe._talk is not first
        assert probe.replaced == 0

    _with_probe(NvmlProbe(_DEADLINES, driver.command, clock_s=lambda: now_s), scenario)


def test_what_a_gpu_lacks_is_unknown(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        missing = ("temperature", "power_mw", "busy", "clock_reasons", "ecc_corrected", "recovery")
        driver.set(0, **dict.fromkeys((*missing, "remap_pending", "fabric_state", "margin"), None))
        gpu = (await probe.read()).gpus[0]
        assert not gpu.error
        assert gpu.temperature_c is None
        assert (gpu.power_w, gpu.busy_ratio, gpu.clock_reasons) == (None, None, None)
        assert (gpu.ecc_corrected, gpu.recovery_action, gpu.remap_pending) == (None, None, None)
        assert (gpu.fabric, gpu.thermal_margin_c) == (None, None)

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


def test_an_old_driver_answers_what_it_can(old_driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        old_driver.set_processes(0, [(77, 1 << 30)])
        gpu = (await probe.read()).gpus[0]
        assert (gpu.recovery_action, gpu.thermal_margin_c) == (None, None)
        assert gpu.sram_threshold_exceeded is None
        assert (gpu.clock_reasons, gpu.temperature_c) == (0, 40.0)
        assert gpu.processes == (GpuProcess(77, 1 << 30),)
        assert gpu.fabric == FabricReading(state=3)
        assert gpu.nvlinks[0].replays == 0
        assert gpu.nvlinks[17].crc == 0

    _with_probe(NvmlProbe(_DEADLINES, old_driver.command), scenario)


def test_slices_of_a_gpu_are_listed(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        driver.set(0, mig=1, mig_devices=7)
        gpu = (await probe.read()).gpus[0]
        assert (gpu.mig_enabled, len(gpu.mig_devices), gpu.busy_ratio) == (True, 7, None)
        assert gpu.mig_devices[6].uuid.startswith("MIG-")
        assert gpu.mig_devices[6].memory_bytes == 10 << 30

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


def test_an_event_comes_at_once_and_without_a_question(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        told: asyncio.Queue[GpuEvent] = asyncio.Queue()
        probe.on_event = told.put_nowait
        await probe.read()
        driver.event(5, "xid", 79)
        async with asyncio.timeout(20):
            assert await told.get() == GpuEvent("0000:40:00.0", "xid", 79)
        driver.event(1, "ecc_double")
        async with asyncio.timeout(20):
            assert (await told.get()).kind == "ecc_double"

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


def test_a_storm_of_single_bit_events_does_not_hide_an_xid(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        told: asyncio.Queue[GpuEvent] = asyncio.Queue()
        probe.on_event = told.put_nowait
        await probe.read()
        for _ in range(1000):
            driver.event(1, "ecc_single")
        driver.event(2, "xid", 48)
        kinds = []
        async with asyncio.timeout(20):
            while "xid" not in kinds:
                kinds.append((await told.get()).kind)
        assert len(kinds) < 100

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


@pytest.mark.parametrize("call", ["", "nvmlDeviceGetTemperature"])
def test_a_hung_driver_misses_its_deadline_and_the_process_is_replaced(
    driver: FakeDriver, call: str
) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        if call:
            driver.hang_call(call)
        else:
            driver.hang(True)
        with pytest.raises(DriverHangError, match=r"within 0\.3 s; process \d+ is in state [RS]"):
            await probe.read()
        driver.hang(False)
        driver.hang_call("")
        probe._deadlines = _DEADLINES
        assert len((await probe.read()).gpus) == 8
        assert probe.replaced == 1

    _with_probe(NvmlProbe(_IMPATIENT, driver.command), scenario)


def test_two_who_ask_at_once_each_get_their_answer_and_one_hang_is_counted_once(
    driver: FakeDriver,
) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        readings = await asyncio.gather(*(probe.read() for _ in range(3)))
        assert [len(reading.gpus) for reading in readings] == [8, 8, 8]
        driver.hang(True)
        said = await asyncio.gather(*(probe.read() for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in said] == [DriverHangError] * 3
        assert probe.replaced == 1
        driver.hang(False)
        probe._deadlines = _DEADLINES
        readings = await asyncio.gather(*(probe.read() for _ in range(3)))
        assert [len(reading.gpus) for reading in readings] == [8, 8, 8]

    _with_probe(NvmlProbe(_IMPATIENT, driver.command), scenario)


def test_a_late_answer_is_not_taken_for_that_of_a_newer_request(driver: FakeDriver) -> None:
    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        driver.hang(True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await probe.read()
        driver.set(0, temperature=70)
        second = asyncio.create_task(probe.read())
        driver.hang(False)
        assert (await second).gpus[0].temperature_c == 70.0
        assert probe.replaced == 0

    _with_probe(NvmlProbe(_DEADLINES, driver.command), scenario)


class _Immortal:
    """A kernel in which a killed process does not die before it is released."""

    released = False

    async def within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        return self.released and await PidfdExits().within(process, 20.0)


def test_a_process_that_cannot_die_is_left_alone_and_no_other_is_started_before_it_is_gone(
    driver: FakeDriver, tmp_path: Path
) -> None:
    exits = _Immortal()
    proc = tmp_path / "proc"

    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        assert probe._talk is not None
        pid = probe._talk.child.process.pid
        folder = proc / str(pid)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{pid} (python) D 1 1")
        (folder / "wchan").write_text("nv_wait_gsp")
        (folder / "stack").write_text("[<0>] nv_wait_gsp+0x1/0x2\n[<0>] nvidia_ioctl+0x3/0x4\n")
        driver.hang(True)
        with pytest.raises(DriverHangError, match="state D, waits in nv_wait_gsp, called from"):
            await probe.read()
        for _ in range(3):
            with pytest.raises(DriverHangError, match=f"cannot be killed: process {pid}"):
                await probe.read()
        assert (probe.stuck_pid, probe.replaced) == (pid, 1)
        exits.released = True
        driver.hang(False)
        probe._deadlines = _DEADLINES
        assert len((await probe.read()).gpus) == 8
        assert probe.stuck_pid is None

    _with_probe(NvmlProbe(_IMPATIENT, driver.command, proc=proc, exits=exits), scenario)


def test_the_owners_of_memory_are_looked_for(driver: FakeDriver, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    (proc / "77").mkdir()

    async def scenario(probe: NvmlProbe) -> None:
        driver.set_processes(0, [(77, 1 << 30), (78, 2 << 30)])
        reading = await probe.read()
        assert reading.dead_pids == (78,)
        # A namespace of its own: the driver's pids are others' here.
        (proc / "self/ns/pid").unlink()
        (proc / "self/ns/pid").symlink_to("pid:[4026532999]")
        probe.complete_soon()
        assert (await probe.read()).dead_pids is None

    _with_probe(NvmlProbe(_DEADLINES, driver.command, proc=proc), scenario)


@pytest.mark.parametrize(("code", "words"), [(18, "version mismatch"), (9, "Driver Not Loaded")])
def test_a_driver_that_cannot_start_is_told_with_its_reason_and_asked_again_soon(
    driver: FakeDriver, code: int, words: str
) -> None:
    now_s = 0.0

    async def scenario(probe: NvmlProbe) -> None:
        nonlocal now_s
        driver.fail_to_start(code)
        reading = await probe.read()
        assert reading.absent_code == code
        assert words in reading.absent
        driver.fail_to_start(0)
        now_s = _DEADLINES.broken_retry_s - 1
        assert await probe.read() is reading
        now_s = _DEADLINES.broken_retry_s + 1
        assert len((await probe.read()).gpus) == 8

    _with_probe(NvmlProbe(_DEADLINES, driver.command, clock_s=lambda: now_s), scenario)


def test_a_process_that_dies_is_replaced() -> None:
    async def scenario(probe: NvmlProbe) -> None:
        with pytest.raises(ProbeError, match="ended"):
            await probe.read()
        assert probe.replaced == 1

    _with_probe(NvmlProbe(_DEADLINES, ("false",)), scenario)


def test_a_process_that_dies_again_and_again_is_started_more_and_more_rarely() -> None:
    now_s = 0.0

    async def scenario(probe: NvmlProbe) -> None:
        nonlocal now_s
        started: list[int] = []
        for second in range(200):
            now_s = float(second)
            with pytest.raises(ProbeError):
                await probe.read()
            if not started or probe.replaced > len(started):
                started.append(second)
        assert started[:5] == [0, 1, 5, 13, 29]
        assert len(started) < 12

    _with_probe(NvmlProbe(_DEADLINES, ("false",), clock_s=lambda: now_s), scenario)


@pytest.mark.parametrize(
    "said",
    [
        "[1, 2]",
        '{"id": 1, "gpus": [{"index": 0}]}',
        '{"id": 1, "gpus": 7}',
        '{"id": 1, "gpus": [], "more": 1}',
        '{"id": 1, "spent_s": NaN, "gpus": []}',
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_nonsense_is_refused(said: str) -> None:
    program = (
        f"import sys; sys.stdout.write({json.dumps(said)} + chr(10)); sys.stdout.flush(); input()"
    )

    async def scenario(probe: NvmlProbe) -> None:
        with pytest.raises(ProbeError, match="nonsense"):
            await probe.read()

    _with_probe(NvmlProbe(_DEADLINES, (sys.executable, "-c", program)), scenario)


def test_without_a_library_that_is_a_fact_and_no_process_is_kept() -> None:
    async def scenario(probe: NvmlProbe) -> None:
        reading = await probe.read()
        if reading.gpus:
            pytest.skip("this machine has NVIDIA GPUs")
        assert reading == GpusReading(absent=reading.absent, absent_code=reading.absent_code)
        assert await probe.read() is reading
        assert (probe._talk, probe.stuck_pid) == (None, None)

    _with_probe(NvmlProbe(_DEADLINES, clock_s=lambda: 0.0), scenario)


def test_the_process_has_every_field_of_a_reading(driver: FakeDriver) -> None:
    child = subprocess.run(
        driver.command,
        input='{"id": 1, "complete": true}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(child.stdout.splitlines()[0])["gpus"][0]
    assert said.keys() == set(GpuReading.__dataclass_fields__)
