"""Accelerator tools as real processes: samples, silence, failure and nonsense."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest

from everstep_agent.detectors.accelerators.reading import AcceleratorLimits
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.accelerators import accelerators_by_vendor, devices_of
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.metrics.accelerators import accelerator_metrics
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.probes.accelerators import amd_smi_child
from everstep_agent.probes.accelerators.amd_smi import AmdProbe
from everstep_agent.probes.accelerators.amd_sysfs import AmdSysfsProbe
from everstep_agent.probes.accelerators.ascend import AscendProbe
from everstep_agent.probes.accelerators.hygon import HygonProbe
from everstep_agent.probes.accelerators.probe import AcceleratorProbe
from everstep_agent.probes.accelerators.text import UnreadableOutputError
from everstep_agent.probes.accelerators.tool import Tool, ToolError, ToolHangError
from everstep_agent.probes.accelerators.vendors import accelerator_probes
from everstep_agent.probes.accelerators.xpu_smi import XpuSmiProbe
from everstep_agent.sources.accelerators import AcceleratorSources
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from fakes.accelerator_tools import FakeTool, amdgpu
from fakes.waits import wait_until

_NOW = Stamp("boot-1", 3600 * 10**9, 1)
_ASCEND = {
    "info": "ascend_info_910b2.txt",
    "info -t ecc": "ascend_ecc_910.txt",
    "info -t health": "ascend_health.txt",
}
_INTEL = {
    "": "intel_help.txt",
    "discovery -j": "intel_discovery.json",
    "discovery --dump": "intel_discovery_dump.csv",
    "health -l": "intel_health.txt",
    "dump": "intel_dump_flex.csv",
}


def _tool(folder: Path, name: str, deadline_s: float = 20.0) -> Tool:
    return Tool(name, deadline_s=deadline_s, path=os.pathsep.join((str(folder), "/usr/bin:/bin")))


def test_npu_smi_lists_every_chip_and_counts_the_errors_of_one_npu_per_look(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "npu-smi")
    fake.answers(_ASCEND)
    probe = AscendProbe(_tool(tmp_path, "npu-smi"))
    assert probe.present()
    assert [device.ecc_corrected for device in probe.read().devices] == [0] + 7 * [None]
    assert [device.ecc_corrected for device in probe.read().devices] == [0, 0] + 6 * [None]
    assert fake.called() == ["info", "info -t ecc -i 0", "info", "info -t ecc -i 1"]


def test_a_product_that_counts_no_errors_is_asked_once(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "npu-smi")
    fake.script('[ "$2" = -t ] && { echo "not supported"; exit 1; }\n' + _cat("ascend_info_a3.txt"))
    probe = AscendProbe(_tool(tmp_path, "npu-smi"))
    assert len(probe.read().devices) == 16
    probe.read()
    assert probe.read().blind == "memory errors: npu-smi info -t ecc -i 0 -c 1: " + (
        "exit status 1: not supported"
    )
    assert [call for call in fake.called() if "ecc" in call] == [
        "info -t ecc -i 0 -c 0",
        "info -t ecc -i 0 -c 1",
    ]


def _cat(sample: str) -> str:
    folder = Path(__file__).resolve().parents[1] / "fixtures/accelerators"
    return f"cat {folder / sample}"


def test_an_unhealthy_chip_is_asked_for_its_error_code(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "npu-smi")
    # One word of the sample is changed: every published one is of a healthy device.
    fake.script(
        'case "$*" in\n'
        f'info) {_cat("ascend_info_910b2.txt")} | sed "7s/| OK     /| Warning/";;\n'
        f'*health*) {_cat("ascend_health.txt")} | sed "s/: NA/: 80E01801/";;\n'
        f"*) {_cat('ascend_ecc_910.txt')};;\n"
        "esac"
    )
    first, *_ = AscendProbe(_tool(tmp_path, "npu-smi")).read().devices
    assert (first.health, first.health_detail) == ("Warning", "80E01801, 80E01801")


def test_the_two_tools_called_xpu_smi_are_told_apart(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "xpu-smi")
    probe = XpuSmiProbe(_tool(tmp_path, "xpu-smi"))
    fake.answers({"": "kunlunxin_p800.txt"})
    assert {device.vendor for device in probe.read().devices} == {"kunlunxin"}
    # Nothing but the harmless call was made.
    assert fake.called() == [""]
    os.utime(fake.file, (1, 1))
    fake.answers(_INTEL)
    (device,) = probe.read().devices
    assert (device.vendor, device.health, device.temperature_limit_c) == ("intel", "ok", 105.0)
    assert device.power_w == 14.61
    calls = fake.called()[1:]
    assert calls[:2] == ["", "discovery -j"]
    probe.read()
    # It is known now; and what never changes is not asked for again.
    assert fake.called()[1 + len(calls) :] == ["discovery -j", "health -l", calls[-1]]


def test_hy_smi_lists_its_cards(tmp_path: Path) -> None:
    FakeTool(tmp_path, "hy-smi").answers({"": "hygon_k100_ai.txt"})
    probe = HygonProbe(_tool(tmp_path, "hy-smi"))
    assert [device.power_w for device in probe.read().devices] == [118.0, 120.0, 116.0, 138.0]


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("echo broken driver; exit 1", ToolError, "exit status 1: broken driver"),
        ("echo broken driver >&2; exit 3", ToolError, "exit status 3: broken driver"),
        ("kill -9 $$", ToolError, "exit status -9"),
        ("echo Welcome to $0", UnreadableOutputError, "'Welcome to"),
        (":", UnreadableOutputError, "''"),
        ("head -c 2000000 /dev/zero", ToolError, "more than 1048576 bytes"),
    ],
)
def test_what_a_tool_does_instead_of_answering_is_told(
    tmp_path: Path, body: str, error: type[Exception], said: str
) -> None:
    for name, make in (("npu-smi", AscendProbe), ("xpu-smi", XpuSmiProbe), ("hy-smi", HygonProbe)):
        FakeTool(tmp_path, name).script(body)
        probe: AcceleratorProbe = make(_tool(tmp_path, name))
        with pytest.raises(error, match=said):
            probe.read()


def test_a_tool_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    FakeTool(tmp_path, "hy-smi").script(
        f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"
    )
    tool = _tool(tmp_path, "hy-smi", deadline_s=0.1)
    # Time stands still until the tool has started something.
    tool.clock_s = lambda: time.monotonic() if child.exists() else 0.0
    with pytest.raises(ToolHangError, match="no answer within"):
        HygonProbe(tool).read()
    pid = int(child.read_text())
    # Killed at once; it is dead when the kernel comes to it.
    wait_until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_tool_that_closes_its_output_and_stays_misses_its_deadline_too(tmp_path: Path) -> None:
    FakeTool(tmp_path, "hy-smi").script("exec >&- 2>&-; exec sleep 600")
    with pytest.raises(ToolHangError, match="does not end"):
        HygonProbe(_tool(tmp_path, "hy-smi", deadline_s=0.5)).read()


def test_a_tool_goes_before_the_agent_when_memory_is_short(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "npu-smi")
    fake.script(
        'until [ "$(cat /proc/$$/oom_score_adj)" = 500 ]; do sleep 0.01; done; echo expendable'
    )
    assert _tool(tmp_path, "npu-smi").run("info") == "expendable\n"


def test_a_tool_that_is_no_program_fails(tmp_path: Path) -> None:
    (tmp_path / "hy-smi").write_bytes(b"\x7fELF\x00")
    (tmp_path / "hy-smi").chmod(0o755)
    with pytest.raises(ToolError, match="hy-smi"):
        HygonProbe(_tool(tmp_path, "hy-smi")).read()


# --- AMD -----------------------------------------------------------------------------------------


def test_an_amd_card_is_read_from_its_files(tmp_path: Path) -> None:
    amdgpu(tmp_path, {"current_link_width": "16\n", "max_link_width": "16\n"})
    (tmp_path / "class/drm/card0-DP-1").mkdir()
    (tmp_path / "class/drm/renderD128").mkdir()
    (device,) = AmdSysfsProbe(tmp_path).read().devices
    assert (device.component, device.serial) == ("accelerator/amd-0000:03:00.0", "0123456789abcdef")
    assert (device.memory_bytes, device.busy_ratio) == (8573157376, 0.04)
    # The sensor that is nearest to its own limit: the edge, 56 degrees below.
    assert (device.temperature_c, device.temperature_limit_c) == (29.0, 85.0)
    assert (device.power_w, device.ecc_corrected, device.ecc_uncorrected) == (18.0, 1, 0)
    assert (device.pcie_width, device.pcie_width_max, device.error) == (16, 16, "")


def test_a_card_of_another_vendor_or_driver_is_none_of_amds(tmp_path: Path) -> None:
    amdgpu(tmp_path, {"vendor": "0x10de\n"})
    amdgpu(tmp_path, {"uevent": "DRIVER=vfio-pci\n"}, card=1)
    assert not AmdSysfsProbe(tmp_path).present()
    assert not AmdSysfsProbe(tmp_path / "nowhere").present()


def test_errors_that_cannot_be_asked_for_now_are_unknown(tmp_path: Path) -> None:
    amdgpu(tmp_path, {"ras/gfx_err_count": "Query currently inaccessible\n"})
    (device,) = AmdSysfsProbe(tmp_path).read().devices
    assert (device.ecc_corrected, device.ecc_uncorrected) == (None, None)


def test_files_that_cannot_be_read_mean_that_the_card_does_not_answer(tmp_path: Path) -> None:
    device = amdgpu(tmp_path)
    for name in ("gpu_busy_percent", "mem_info_vram_used"):
        (device / name).unlink()
        # Reading a folder fails like a driver that refuses.
        (device / name).mkdir()
    (reading,) = AmdSysfsProbe(tmp_path).read().devices
    assert reading.error.startswith("gpu_busy_percent: ")


@pytest.mark.parametrize("text", ["", "\n", "x" * 100_000, "\x00\xff", "-1\n", "9" * 40 + "\n"])
def test_any_content_of_any_file_is_survived(tmp_path: Path, text: str) -> None:
    device = amdgpu(tmp_path)
    for file in device.rglob("*"):
        if file.is_file() and file.name not in ("vendor", "uevent"):
            file.write_bytes(text.encode("latin-1"))
    (reading,) = AmdSysfsProbe(tmp_path).read().devices
    assert reading.error == ""
    assert reading.memory_bytes is None


_FAKE_LIBRARY = '''
"""Answers by the signatures of amdsmi 7.0; the values are those of the fake card."""
from enum import IntEnum
class AmdSmiException(Exception): pass
class AmdSmiTemperatureType(IntEnum):
    HOTSPOT = 1
class AmdSmiTemperatureMetric(IntEnum):
    CURRENT, CRITICAL = 0, 5
def amdsmi_init(): {init}
def amdsmi_shut_down(): pass
def amdsmi_get_processor_handles(): return ["handle"]
def amdsmi_get_gpu_device_bdf(handle): return "0000:03:00.0"
def amdsmi_get_gpu_device_uuid(handle): return "01ff74a1-0000-1000-80ab-0123456789ab"
def amdsmi_get_gpu_asic_info(handle): return {{"market_name": "AMD Instinct MI300X"}}
def amdsmi_get_gpu_driver_info(handle): return {{"driver_version": "6.14.14"}}
def amdsmi_get_gpu_vram_usage(handle): return {{"vram_total": 8176, "vram_used": 4088}}
def amdsmi_get_power_info(handle):
    return {{"current_socket_power": "N/A", "average_socket_power": 131}}
def amdsmi_get_gpu_activity(handle): return {{"gfx_activity": 97, "umc_activity": "N/A"}}
def amdsmi_get_temp_metric(handle, kind, metric): return 100 if metric == 5 else 45
def amdsmi_get_gpu_total_ecc_count(handle): raise AmdSmiException("NOT_SUPPORTED")
'''


def _library(folder: Path, init: str) -> tuple[str, ...]:
    folder.mkdir()
    (folder / "amdsmi.py").write_text(_FAKE_LIBRARY.format(init=init))
    return ("/usr/bin/env", f"PYTHONPATH={folder}", sys.executable, "-P", amd_smi_child.__file__)


def test_amds_library_is_preferred_field_by_field(tmp_path: Path) -> None:
    amdgpu(tmp_path)
    probe = AmdProbe(
        AmdSysfsProbe(tmp_path),
        installed=lambda: True,
        command=_library(tmp_path / "library", "pass"),
    )
    reading = probe.read()
    (device,) = reading.devices
    assert (reading.tool, device.name) == ("amdsmi", "AMD Instinct MI300X")
    assert (device.memory_used_ratio, device.power_w, device.busy_ratio) == (0.5, 131.0, 0.97)
    assert (device.temperature_c, device.temperature_limit_c) == (45.0, 100.0)
    # What the library does not support here comes from sysfs.
    assert device.ecc_corrected == 1


def test_a_library_without_a_driver_that_it_knows_leaves_sysfs(tmp_path: Path) -> None:
    amdgpu(tmp_path)
    command = _library(tmp_path / "library", 'raise AmdSmiException("DRIVER_NOT_LOADED")')
    probe = AmdProbe(AmdSysfsProbe(tmp_path), installed=lambda: True, command=command)
    assert [probe.read().tool for _ in range(2)] == ["amdgpu", "amdgpu"]


def test_a_package_without_its_library_leaves_sysfs(tmp_path: Path) -> None:
    amdgpu(tmp_path)
    (tmp_path / "library").mkdir()
    (tmp_path / "library/amdsmi.py").write_text(
        # What amdsmi 7.0.2 does without libamd_smi.so.
        "print('Unable to find libamd_smi.so library')\nraise KeyError('libamd_smi.so')"
    )
    command = ("/usr/bin/env", f"PYTHONPATH={tmp_path / 'library'}", sys.executable, "-P")
    probe = AmdProbe(
        AmdSysfsProbe(tmp_path),
        installed=lambda: True,
        command=(*command, amd_smi_child.__file__),
    )
    assert probe.read().tool == "amdgpu"


class _Metrics:
    """A collector of the accelerators alone."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        return accelerator_metrics(self._view)


def test_a_library_that_fails_leaves_sysfs_and_says_so(tmp_path: Path) -> None:
    amdgpu(tmp_path)
    command = _library(tmp_path / "library", 'raise ValueError("no such symbol")')
    probe = AmdProbe(AmdSysfsProbe(tmp_path), installed=lambda: True, command=command)
    reading = probe.read()
    assert (reading.tool, len(reading.devices)) == ("amdgpu", 1)
    assert "exit status 1: ValueError: no such symbol" in reading.blind


# --- the sources ---------------------------------------------------------------------------------


class _Node:
    """The watch over some tools, and what came of it."""

    def __init__(self, *probes: AcceleratorProbe) -> None:
        self.view = NodeView()
        self.changes = 0
        findings = Findings(FindingBook(CONDITIONS), lambda _: None, lambda _: None, lambda: _NOW)
        self.book = findings.book
        sources = AcceleratorSources(
            probes, self.view, AcceleratorLimits(), Counters(), lambda: _NOW, self._count
        )
        self.watch = Watch(sources.sources(), findings)

    def _count(self) -> None:
        self.changes += 1

    def open(self) -> set[tuple[str, str]]:
        """Return the open findings."""
        known = self.book.open_findings
        return {(one.finding.component, one.finding.condition) for one in known}


def _run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(bounded())


def test_a_tool_that_hangs_or_fails_is_a_finding_and_the_others_go_on(tmp_path: Path) -> None:
    hung, broken = FakeTool(tmp_path, "hy-smi"), FakeTool(tmp_path, "xpu-smi")
    FakeTool(tmp_path, "npu-smi").answers(_ASCEND)
    hung.script("sleep 600")
    broken.script("echo nonsense")
    impatient = _tool(tmp_path, "hy-smi", deadline_s=0.5)
    node = _Node(
        AscendProbe(_tool(tmp_path, "npu-smi")),
        XpuSmiProbe(_tool(tmp_path, "xpu-smi")),
        HygonProbe(impatient),
    )

    async def work() -> None:
        for _ in range(3):
            await node.watch.probe_now()
        assert node.open() == {
            ("probe/accelerators-hy-smi", "ProbeHang"),
            ("probe/accelerators-xpu-smi", "ProbeFailed"),
        }
        assert accelerators_by_vendor(node.view.accelerators.values()) is None
        assert len(devices_of(node.view.accelerators.values())) == 8
        impatient.deadline_s = 20.0
        hung.answers({"": "hygon_k100_ai.txt"})
        broken.answers({"": "kunlunxin_p800.txt"})
        await node.watch.probe_now()
        assert node.open() == set()
        counts = accelerators_by_vendor(node.view.accelerators.values())
        assert counts == (("ascend", 8), ("hygon", 4), ("kunlunxin", 8))
        assert node.changes == 3

    _run(work)


def test_a_card_that_vanishes_is_lost_and_clears_when_it_is_back(tmp_path: Path) -> None:
    fake = FakeTool(tmp_path, "hy-smi")
    fake.answers({"": "hygon_k100_ai.txt"})
    node = _Node(HygonProbe(_tool(tmp_path, "hy-smi")))

    async def work() -> None:
        await node.watch.probe_now()
        fake.script(f"{_cat('hygon_k100_ai.txt')} | grep -v ^2")
        for _ in range(3):
            await node.watch.probe_now()
        assert node.open() == {("accelerator/hygon-2", "AcceleratorLost")}
        fake.answers({"": "hygon_k100_ai.txt"})
        for _ in range(3):
            await node.watch.probe_now()
        assert node.open() == set()
        fake.file.unlink()
        for _ in range(3):
            await node.watch.probe_now()
        assert node.open() == {("probe/accelerators-hy-smi", "MonitorDegraded")}

    _run(work)


def test_a_node_without_such_devices_says_nothing_of_them(tmp_path: Path) -> None:
    node = _Node(
        *accelerator_probes(tmp_path)[:1],
        HygonProbe(_tool(tmp_path, "hy-smi")),
    )

    async def work() -> None:
        looks = await node.watch.probe_now()
        assert all(not look.judgements and not look.trouble for look in looks)

    _run(work)
    assert accelerators_by_vendor(node.view.accelerators.values()) == ()
    assert node.view.inventory(Path("/proc")).accelerators == ()
    assert list(accelerator_metrics(node.view)) == []


def test_the_metrics_name_vendor_and_device(tmp_path: Path) -> None:
    FakeTool(tmp_path, "npu-smi").answers(_ASCEND)
    view = NodeView()
    view.accelerators["npu-smi"] = AscendProbe(_tool(tmp_path, "npu-smi")).read()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(view))
    page = generate_latest(registry).decode()
    labels = 'accelerator="0000:c1:00.0",name="Ascend 910B2",vendor="ascend"'
    assert f"everstep_accelerator_temperature_celsius{{{labels}}} 49.0" in page
    assert f"everstep_accelerator_ecc_corrected_errors_total{{{labels}}} 0.0" in page
