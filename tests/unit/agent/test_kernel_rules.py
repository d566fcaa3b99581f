"""Kernel lines by subject: real forms of what the kernel and its drivers write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel
from everstep_agent.detectors.kernel.detector import PREFILTER, KernelDetector
from everstep_agent.detectors.kernel.gpu_faults.clearance import judge_ended_by_boot
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.rule import LinePrefilter
from everstep_agent.detectors.readings.topology import PciPlace
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from unit.agent.kernel_corpus import FOUND, HARMLESS

_TABLES = load_tables()
_NOW = Stamp("boot-1", 10**12, 10**18)


def _judge(*lines: str) -> list[Judgement]:
    return judge_kernel([KernelLine(line) for line in lines], XidSettings(_TABLES), _NOW)


_ALARM = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a/{_ALARM},task=p,pid=5",
        f"Tasks in /a/{_ALARM} are going to be killed due to memory.oom.group set",
        f"cgroup: fork rejected by pids controller in /user.slice/{_ALARM}",
        "cgroup: fork rejected by pids controller in /nvswitch0: SXid (PCI:0000:05:00.0): 22003, x",
        "Memory cgroup stats for /a/Kernel panic - not syncing: x:",
        "Oops: [#1][77]: segfault at 0 ip 0 sp 0 error 4 in a.out",
        "CPU: 5 PID: 1 Comm: Oops: [#1] Tainted: P OE 6.8.0",
        "INFO: task kernel BUG at x:77 blocked",
        f"p[1]: segfault at 0 ip 0007 sp 0007 error 4 in {_ALARM}[7f00+1000]",
        "p[1]: segfault at 0 ip 0 sp 0 error 4 in EXT4-fs error (device sda1)[7f00+1000]",
        "p[1]: segfault at 0 ip 0 sp 0 error 4 in Kernel panic - not syncing: x[7f00+1000]",
        "traps: p[1] general protection fault ip:0 sp:0 error:0 in kernel BUG at a:1![7f00+1000]",
        f"traps: p[1] trap invalid opcode ip:0 sp:0 error:0 in {_ALARM}[7f00+1000]",
        f"process 'home/p/{_ALARM}' started with executable stack",
        f"process '{_ALARM}' started with executable stack",
        f"overlayfs: failed to resolve '{_ALARM}': -2",
        f"tmpfs: Unknown parameter '{_ALARM}'",
        f"tmpfs: Bad value for ' {_ALARM}'",
        f"request_module: modprobe fs-{_ALARM} cannot be processed, kmod busy",
        f"request_module: modprobe fs- {_ALARM} cannot be processed, kmod busy",
        f"usb 1-1: Product: {_ALARM}",
        f"input: {_ALARM} as /devices/virtual/input/input5",
        f"audit: {_ALARM}",
        f"{_ALARM} IN=veth0 OUT= MAC=02:00 SRC=10.0.0.1 DST=10.0.0.2",
    ],
)
def test_what_a_process_chose_to_be_called_is_no_word_of_the_kernel(line: str) -> None:
    assert _judge(line) == []


_PROGRAM_LINES = (
    "{comm}[4711]: segfault at 0 ip 000055d0 sp 00007ffd error 4 in {file}[55d0+1000]",
    "[  1.1][ T77] traps: {comm}[77] trap invalid opcode ip:55d0 sp:7ffd error:0 in {file}[55d0+1]",
    "{comm}[4711]: unhandled exception: DABT (lower EL), ESR 0x92, in {file}[400000+1000]",
    "{comm}: page allocation failure: order:4, mode:0x0, cpuset={file},mems_allowed=0",
)


@pytest.mark.parametrize("line", _PROGRAM_LINES)
@pytest.mark.parametrize(
    ("comm", "file"),
    [
        ("XFS (sda1): ", "shutting down filesystem"),
        ("NVRM: x", "GPU 0000:3b:00.0 fallen off the bus"),
        ("ena 0000:3b:00", "Reset attempt failed"),
        ("ice 0000:3b:00", "FW critical error"),
        ("LustreError: ", "evicted"),
        ("NFS: state mana", "ger failed on NFSv4 server x with error"),
        ("EXT4-fs (a): ", "EXT4-fs error (device a): x"),
    ],
)
def test_the_names_of_a_program_and_of_its_file_make_no_message_together(
    line: str, comm: str, file: str
) -> None:
    assert _judge(line.format(comm=comm, file=file)) == []


_BOND_DOWN = "bond0: (slave ens1f0): link status definitely down, disabling slave"
_LINK_DOWN = "mlx5_core 0000:5e:00.0 ens1f0: Link down"


@pytest.mark.parametrize(("line", "flaps"), [(_BOND_DOWN, False), (_LINK_DOWN, True)])
def test_a_bond_that_any_user_can_have_makes_no_flapping_link(line: str, flaps: bool) -> None:
    found = {judgement.key.condition for judgement in _judge(*[line] * 5)}
    assert found == ({"NicLinkDown", "NicLinkFlapping"} if flaps else {"NicLinkDown"})


@pytest.mark.parametrize(
    "before", ["", "<4>[  100.1] ", "[  100.1][ T4242] ", "kernel: ", "nvidia 0000:3b:00.0: "]
)
def test_what_the_kernel_itself_writes_before_a_message_hides_nothing(before: str) -> None:
    assert _judge(f"{before}{_ALARM}")


def test_a_gpu_that_is_named_a_line_before_is_found() -> None:
    (judgement,) = _judge(
        "NVRM: The NVIDIA GPU 0000:3b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert judgement.key == FindingKey("gpu/0000:3b:00.0", "FallenOffTheBus")


def test_a_file_server_that_is_back_ends_its_finding() -> None:
    silent = "nfs: server filer-1 not responding, still trying"
    assert isinstance(_judge(silent)[0], Faulty)
    (judgement,) = _judge(silent, "nfs: server filer-1 OK")
    assert isinstance(judgement, Healthy)
    (judgement,) = _judge("nfs: server filer-1 OK", silent)
    assert isinstance(judgement, Faulty)


def test_the_end_of_a_jobs_own_memory_is_told_and_is_no_fault_of_the_node() -> None:
    (judgement,) = _judge("Memory cgroup out of memory: Killed process 1 (python) total-vm:1kB")
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is Severity.INFO


@pytest.mark.parametrize(
    ("line", "condition", "severity"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", "SxidFatal", Severity.FATAL),
        ("22003, Fatal, Link 30 Minion Halt", "SxidFatal", Severity.FATAL),
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error", "SxidStall", Severity.DEGRADED),
        ("26006, SOE HALTED", "SxidObserved", Severity.INFO),
        ("10003, Non-fatal, Link 1 host thermal", "SxidObserved", Severity.INFO),
    ],
)
def test_an_error_of_a_switch_is_read_with_and_without_its_link(
    line: str, condition: str, severity: Severity
) -> None:
    (judgement,) = _judge(f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {line}")
    assert isinstance(judgement, Faulty)
    assert judgement.key == FindingKey("nvswitch/0000:05:00.0", condition)
    assert judgement.finding.severity is severity


def test_an_error_that_the_switch_corrected_is_no_finding() -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 11012, Non-fatal, Link 3 single bit ECC"
    assert _judge(line) == []


def _open(condition: str, boot: str) -> BookEntry:
    finding = Finding(
        component="disk/sda", condition=condition, severity=Severity.DEGRADED, message="m"
    )
    return BookEntry(finding, Stamp(boot, 1, 1))


def test_a_reboot_ends_what_the_kernel_never_takes_back_and_nothing_else() -> None:
    known = [
        _open("KernelOops", "boot-0"),
        _open("KernelOops", "boot-1"),
        _open("HungTask", "boot-0"),
    ]
    (judgement,) = judge_ended_by_boot(known, "boot-1")
    assert isinstance(judgement, Healthy)
    assert judgement.key == known[0].finding.key


def test_a_finding_that_was_seen_again_after_the_reboot_stays() -> None:
    old = _open("KernelOops", "boot-0")
    again = BookEntry(old.finding, old.since, Stamp("boot-1", 2, 2))
    assert judge_ended_by_boot([again], "boot-1") == []


def test_every_condition_of_the_kernel_log_can_end() -> None:
    kernel = [CONDITIONS[condition] for condition, _, _ in FOUND]
    assert all(one.clears_when for one in kernel)


def test_a_needle_that_has_another_in_it_is_not_looked_for() -> None:
    prefilter = LinePrefilter(("GPU reset begin", "GPU reset", "nvme", "GPU reset"))
    assert prefilter.needles == ("GPU reset", "nvme")
    assert prefilter.select(["GPU reset begin!", "quiet", "nvme nvme0: x"]) == [0, 2]


def test_a_flood_says_each_thing_once_and_only_lines_with_a_needle_are_looked_at() -> None:
    noise = ["usb 1-1: new high-speed USB device number 4 using xhci_hcd"] * 5000
    errors = ["blk_update_request: I/O error, dev sda, sector 1 op 0x0"] * 5000
    assert PREFILTER.select(noise) == []
    (judgement,) = _judge(*noise, *errors)
    assert judgement.key == FindingKey("disk/sda", "DiskIoError")


def test_a_line_of_a_process_is_marked_as_injected() -> None:
    (judgement,) = judge_kernel([KernelLine("kernel BUG at mm/slub.c:1!", injected=True)])
    assert isinstance(judgement, Faulty)
    assert judgement.finding.injected


_PIECES = st.sampled_from([*(line for _, _, line in FOUND), *HARMLESS])


@given(st.lists(st.one_of(st.text(), _PIECES.flatmap(lambda t: st.text().map(lambda x: t + x)))))
def test_no_text_makes_the_detector_fail(lines: list[str]) -> None:
    for judgement in _judge(*lines):
        assert judgement.key.condition in CONDITIONS


@given(_PIECES, st.integers(0, 200), st.integers(0, 200))
def test_no_part_of_a_line_makes_the_detector_fail(line: str, begin: int, end: int) -> None:
    _judge(line[begin:end])
    assert RULES.judge(KernelLine(line[begin:end])) is None or PREFILTER.passes(line[begin:end])


def _flap(second: int) -> KernelLine:
    return KernelLine("mlx5_core 0000:5e:00.0 ens1: Link down", boot_ns=second * 10**9)


def test_a_link_that_goes_down_three_times_in_ten_minutes_flaps() -> None:
    twice = judge_kernel([_flap(1000), _flap(1300)])
    assert {one.key.condition for one in twice} == {"NicLinkDown"}
    slowly = judge_kernel([_flap(1000), _flap(1500), _flap(2000)])
    assert {one.key.condition for one in slowly} == {"NicLinkDown"}
    thrice = judge_kernel([_flap(1000), _flap(1300), _flap(1599)])
    assert FindingKey("link/ens1", "NicLinkFlapping") in {one.key for one in thrice}


def test_links_that_come_up_with_the_node_do_not_flap() -> None:
    found = judge_kernel([_flap(10), _flap(20), _flap(30), _flap(40)])
    assert {one.key.condition for one in found} == {"NicLinkDown"}


def test_twenty_corrected_errors_within_a_minute_are_a_storm_of_the_device() -> None:
    line = "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0"
    assert len(_judge(*[line] * 19)) == 1
    keys = {one.key for one in _judge(*[line] * 20)}
    assert FindingKey("pcie/0000:3b:00.0", "PcieErrorStorm") in keys


_BOOT = [
    "pci 0000:3a:00.0: PCI bridge to [bus 3b]",
    "pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint",
    "pci 0000:17:00.0: PCI bridge to [bus 18-1f]",
    "pci 0000:19:00.0: [10de:2330] type 00 class 0x030200",
    "pci 0000:1a:00.0: [15b3:1021] type 00 class 0x020700",
    "pci 0000:1a:00.1: [15b3:1021] type 00 class 0x020700",
]


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000",
        "pcieport 0000:3a:00.0: pciehp: Slot(5): Link Down",
        "pcieport 0000:3a:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
        "pcieport 0000:3a:00.0: AER: device recovery failed",
    ],
)
def test_an_error_of_a_port_names_the_device_behind_it(line: str) -> None:
    (judgement,) = _judge(*_BOOT, line)
    assert isinstance(judgement, Faulty)
    assert judgement.key.component == "pcie/0000:3b:00.0"
    assert "0000:3b:00.0" in judgement.finding.message
    assert "0000:3a:00.0" in judgement.finding.evidence


def test_an_error_of_a_port_with_several_devices_names_all_of_them() -> None:
    (judgement,) = _judge(*_BOOT, "pcieport 0000:17:00.0: DPC: ERR_FATAL detected")
    assert isinstance(judgement, Faulty)
    assert judgement.key.component == "pcie/0000:17:00.0"
    assert "0000:19:00.0, 0000:1a:00.0, 0000:1a:00.1" in judgement.finding.message


def test_a_slot_whose_link_is_up_again_ends_the_finding_of_its_device() -> None:
    slot = "pcieport 0000:3a:00.0: pciehp: Slot(5): Link"
    (judgement,) = _judge(*_BOOT, f"{slot} Down", f"{slot} Up")
    assert isinstance(judgement, Healthy)
    assert judgement.key == FindingKey("pcie/0000:3b:00.0", "PcieLinkLost")


def test_a_device_that_left_the_pci_tree_is_still_known_behind_its_port() -> None:
    detector = KernelDetector(XidSettings(_TABLES))
    detector.ports.note_places(
        {"0000:3b:00.0": PciPlace(("pci0000:3a", "0000:3a:00.0", "0000:3b:00.0"))}
    )
    detector.ports.note_places({})
    line = KernelLine("pcieport 0000:3a:00.0: DPC: ERR_FATAL detected")
    (judgement,) = detector.judge(detector.prefilter([line]), DriverTruth(), _NOW)
    assert judgement.key.component == "pcie/0000:3b:00.0"


@pytest.mark.parametrize(
    ("second", "severity"),
    [(9, Severity.INFO), (900, Severity.DEGRADED), (None, Severity.DEGRADED)],
)
def test_a_port_without_a_cable_is_only_told_while_the_node_boots(
    second: int | None, severity: Severity
) -> None:
    text = "mlx5_core 0000:63:00.1: Port module event: module 1, Cable unplugged"
    line = KernelLine(text, boot_ns=None if second is None else second * 10**9)
    (judgement,) = judge_kernel([line])
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is severity


def test_the_image_file_that_somebody_mounted_is_no_disk_of_the_node() -> None:
    (judgement,) = _judge("EXT4-fs (loop3): Remounting filesystem read-only")
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is Severity.INFO
    # Nobody has to repair hardware for it.
    assert judgement.finding.suggested_action is SuggestedAction.WATCH


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:5e:00.0: poll_health:817:(pid 0): Fatal error 1 detected",
        "XFS (sdb1): Filesystem has been shut down due to log error (0x2).",
        "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        "{1}[Hardware Error]: event severity: fatal",
    ],
)
def test_what_leaves_no_doubt_that_the_node_cannot_work_is_fatal_and_enforced(line: str) -> None:
    (judgement,) = _judge(line)
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is Severity.FATAL
    assert CONDITIONS[judgement.key.condition].mode is Mode.ENFORCE


def test_an_error_of_a_switch_that_only_the_driver_calls_fatal_is_degraded() -> None:
    (judgement,) = _judge("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 99999, Fatal, Link 30 new")
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is Severity.DEGRADED
    assert "calls it fatal" in judgement.finding.message
