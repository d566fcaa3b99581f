"""Kernel lines by subject: real forms of what the kernel and its drivers write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel
from everstep_agent.detectors.kernel.detector import RULES, SIEVE
from everstep_agent.detectors.kernel.gpu_faults.clearance import judge_ended_by_boot
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

_TABLES = load_tables()
_NOW = Stamp("boot-1", 10**12, 10**18)


def _judge(*lines: str) -> list[Judgement]:
    return judge_kernel([KernelLine(line) for line in lines], XidSettings(_TABLES), _NOW)


_MLX = "mlx5_core 0000:5e:00.0: "
_FOUND = [
    # The NVIDIA driver without an Xid.
    ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "gpu/0000:3b:00.0", "FallenOffTheBus"),
    ("NVRM: GPU at PCI:0000:3b:00: has fallen off the bus", "gpu/0000:3b:00.0", "FallenOffTheBus"),
    (
        "NVRM: The NVIDIA GPU 0000:3b:00.0 NVRM: (PCI ID: 10de:2330) NVRM: installed in this "
        "system has NVRM: fallen off the bus and is not responding to commands.",
        "gpu/0000:3b:00.0",
        "FallenOffTheBus",
    ),
    (
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)",
        "gpu/0000:3b:00.0",
        "GpuInitFailed",
    ),
    (
        "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
        "driver/nvidia",
        "NvlinkDetectFailed",
    ),
    (
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping "
        "further processing",
        "driver/nvidia_peermem",
        "PeermemInvalidContext",
    ),
    # mlx5
    (
        f"{_MLX}wait_func:1151:(pid 1): ENABLE_HCA(0x104) timeout. Will cause a leak of a command "
        "resource",
        "link/0000:5e:00.0",
        "NicCommandTimeout",
    ),
    (
        f"{_MLX}poll_health:801:(pid 0): device's health compromised - reached miss count",
        "link/0000:5e:00.0",
        "NicHealthLost",
    ),
    (
        f"{_MLX}poll_health:817:(pid 0): Fatal error 1 detected",
        "link/0000:5e:00.0",
        "NicUnrecoverable",
    ),
    (
        f"{_MLX}mlx5_health_try_recover:336: health recovery failed",
        "link/0000:5e:00.0",
        "NicUnrecoverable",
    ),
    (
        f"{_MLX}mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W).",
        "link/0000:5e:00.0",
        "NicPowerLow",
    ),
    (
        f"{_MLX}Port module event[error]: module 0, Cable error, High Temperature",
        "link/0000:5e:00.0",
        "NicModuleHot",
    ),
    (
        f"{_MLX}mlx5_cmd_out_err:838:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
        "operation(0x2), syndrome (0x9a31ab), err(-22)",
        "link/0000:5e:00.0",
        "NicRegisterRefused",
    ),
    # PCIe
    (
        "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
        "pcie/0000:3b:00.0",
        "PcieErrorCorrected",
    ),
    (
        "pcieport 0000:3a:00.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:3b:00.0",
        "pcie/0000:3b:00.0",
        "PcieErrorUncorrected",
    ),
    (
        "pcieport 0000:3a:00.0: AER: Uncorrectable (Fatal) error message received from "
        "0000:3b:00.0",
        "pcie/0000:3b:00.0",
        "PcieErrorFatal",
    ),
    (
        "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "pcie/0000:01:00.0",
        "PcieErrorCorrected",
    ),
    (
        "nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction",
        "pcie/0000:3b:00.0",
        "PcieErrorFatal",
    ),
    # Processors and memory
    (
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 6: be00000000800400",
        "host/hardware",
        "MachineCheckFatal",
    ),
    (
        "mce: [Hardware Error]: Machine check events logged",
        "host/hardware",
        "MachineCheckCorrected",
    ),
    ("{1}[Hardware Error]: event severity: fatal", "host/hardware", "MachineCheckFatal"),
    ("{1}[Hardware Error]: event severity: corrected", "host/hardware", "MachineCheckCorrected"),
    (
        "[Hardware Error]: Uncorrected, software restartable error.",
        "host/hardware",
        "MachineCheckFatal",
    ),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "host/memory",
        "MemoryErrorCorrected",
    ),
    (
        "EDAC MC1: 1 UE memory scrubbing error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
        "host/memory",
        "MemoryErrorUncorrected",
    ),
    (
        "Memory failure: 0x1f8a3c: recovery action for dirty LRU page: Recovered",
        "host/memory",
        "MemoryErrorUncorrected",
    ),
    # Stalls and crashes
    ("INFO: task python:1234 blocked for more than 120 seconds.", "host/kernel", "HungTask"),
    (
        "INFO: task kworker/u256:3:1234 blocked for more than 241 seconds.",
        "host/kernel",
        "HungTask",
    ),
    (
        "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]",
        "host/kernel",
        "KernelLockup",
    ),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "host/kernel", "KernelLockup"),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "host/kernel", "KernelLockup"),
    ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "host/kernel", "KernelLockup"),
    ("Kernel panic - not syncing: Fatal machine check", "host/kernel", "KernelPanic"),
    (
        "BUG: kernel NULL pointer dereference, address: 0000000000000010",
        "host/kernel",
        "KernelOops",
    ),
    ("BUG: unable to handle page fault for address: ffffa0", "host/kernel", "KernelOops"),
    ("kernel BUG at mm/slub.c:123!", "host/kernel", "KernelOops"),
    (
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
        "host/kernel",
        "KernelOops",
    ),
    ("Oops: 0000 [#1] PREEMPT SMP NOPTI", "host/kernel", "KernelOops"),
    ("Out of memory: Killed process 1234 (python) total-vm:1kB", "host/memory", "NodeOutOfMemory"),
    (
        "Memory cgroup out of memory: Killed process 1234 (python) total-vm:1kB",
        "host/memory",
        "JobOutOfMemory",
    ),
    (
        "python3[4242]: segfault at 7f ip 00007f sp 00007ffc error 4 in libnccl.so.2.18.5[7f00]",
        "service/nccl",
        "NcclCrash",
    ),
    # Disks, file systems, file servers
    (
        "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        "disk/nvme0n1p1",
        "FilesystemReadOnly",
    ),
    ("BTRFS info (device sda1: state E): forced readonly", "disk/sda1", "FilesystemReadOnly"),
    (
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory",
        "disk/sda1",
        "FilesystemError",
    ),
    ("EXT4-fs (sda1): I/O error while writing superblock", "disk/sda1", "FilesystemError"),
    ("Aborting journal on device sda1-8.", "disk/sda1-8", "FilesystemError"),
    (
        "XFS (sdb1): Corruption of in-memory data (0x8) detected at xfs_defer_finish_noroll+0x1 "
        "(fs/xfs/libxfs/xfs_defer.c:573).  Shutting down filesystem.",
        "disk/sdb1",
        "FilesystemShutDown",
    ),
    (
        "XFS (dm-0): xfs_do_force_shutdown(0x2) called from line 1297 of file fs/xfs/xfs_log.c",
        "disk/dm-0",
        "FilesystemShutDown",
    ),
    (
        'XFS (sda1): metadata I/O error in "xfs_imap_to_bp" at daddr 0x2',
        "disk/sda1",
        "FilesystemError",
    ),
    (
        "BTRFS: error (device sda1: state EA) in btrfs_commit_transaction:2418: errno=-5 IO "
        "failure",
        "disk/sda1",
        "FilesystemError",
    ),
    (
        "blk_update_request: I/O error, dev sda, sector 12345 op 0x0:(READ) flags 0x0",
        "disk/sda",
        "DiskIoError",
    ),
    (
        "blk_update_request: critical medium error, dev nvme0n1, sector 123",
        "disk/nvme0n1",
        "DiskMediumError",
    ),
    ("Buffer I/O error on dev sda1, logical block 0, async page read", "disk/sda1", "DiskIoError"),
    ("nvme nvme0: I/O 12 QID 5 timeout, aborting", "disk/nvme0", "NvmeTimeout"),
    (
        "nvme nvme0: I/O tag 12 (100c) opcode 0x2 (Read) QID 5 timeout, reset controller",
        "disk/nvme0",
        "NvmeTimeout",
    ),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        "disk/nvme0",
        "NvmeTimeout",
    ),
    (
        "nvme nvme0: Disabling device after reset failure: -19",
        "disk/nvme0",
        "NvmeControllerLost",
    ),
    (
        "md/raid1:md0: Disk failure on sdb1, disabling device.",
        "disk/md0",
        "RaidDiskFailed",
    ),
    (
        "nfs: server filer-1 not responding, still trying",
        "disk/nfs:filer-1",
        "NfsServerSilent",
    ),
]


@pytest.mark.parametrize(("line", "component", "condition"), _FOUND)
def test_a_line_is_a_finding_of_its_component(line: str, component: str, condition: str) -> None:
    (judgement,) = _judge(line)
    assert isinstance(judgement, Faulty)
    assert judgement.key == FindingKey(component, condition)
    assert judgement.finding.evidence == line[:300]
    assert condition in CONDITIONS


_NOT_FOUND = [
    "NVRM: GPU at PCI:0000:65:00: GPU-b850f46d-d5ea-c752-ddf3-c52b8e5b4b67",
    "NVRM: GPU Board Serial Number: 1324021012345",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan  1 00:00:00 UTC 2026",
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1234) installed in this system is not "
    "supported by the NVIDIA 570.86.15 driver release.",
    "mlx5_core 0000:5e:00.0 ib0: Link up",
    "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
    "nvme nvme0: 64/0/0 default/read/poll queues",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
    "XFS (sdb1): Ending clean mount",
    "BTRFS info (device sda1): using crc32c checksum algorithm",
    "EDAC MC0: Giving out device to module i10nm_edac controller",
    "pcieport 0000:3a:00.0: AER: enabled with IRQ 25",
    "mce: CPU supports 32 MCE banks",
    "traps: python[123] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f]",
    "python[1]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6[0+1]",
]


@pytest.mark.parametrize("line", _NOT_FOUND)
def test_ordinary_lines_are_no_findings(line: str) -> None:
    assert _judge(line) == []


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


@pytest.mark.parametrize(
    "before", ["", "<4>[  100.1] ", "[  100.1][ T4242] ", "kernel: ", "nvidia 0000:3b:00.0: "]
)
def test_what_the_kernel_itself_writes_before_a_message_hides_nothing(before: str) -> None:
    assert _judge(f"{before}{_ALARM}")


@pytest.mark.parametrize("device", ["fd0", "sr0"])
def test_a_drive_without_a_medium_is_no_broken_disk(device: str) -> None:
    assert _judge(f"I/O error, dev {device}, sector 0 op 0x0:(READ) flags 0x0") == []
    assert _judge(f"Buffer I/O error on dev {device}, logical block 0, async page read") == []


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
    kernel = [CONDITIONS[rule] for _, _, rule in _FOUND]
    assert all(one.clears_when for one in kernel)


def test_a_flood_says_each_thing_once_and_only_lines_with_a_needle_are_looked_at() -> None:
    noise = ["usb 1-1: new high-speed USB device number 4 using xhci_hcd"] * 5000
    errors = ["blk_update_request: I/O error, dev sda, sector 1 op 0x0"] * 5000
    assert SIEVE.sift(noise) == []
    (judgement,) = _judge(*noise, *errors)
    assert judgement.key == FindingKey("disk/sda", "DiskIoError")


def test_a_line_of_a_process_is_marked_as_injected() -> None:
    (judgement,) = judge_kernel([KernelLine("kernel BUG at mm/slub.c:1!", injected=True)])
    assert isinstance(judgement, Faulty)
    assert judgement.finding.injected


_PIECES = st.sampled_from([line for line, _, _ in _FOUND] + _NOT_FOUND)


@given(st.lists(st.one_of(st.text(), _PIECES.flatmap(lambda t: st.text().map(lambda x: t + x)))))
def test_no_text_makes_the_detector_fail(lines: list[str]) -> None:
    for judgement in _judge(*lines):
        assert judgement.key.condition in CONDITIONS


@given(_PIECES, st.integers(0, 200), st.integers(0, 200))
def test_no_part_of_a_line_makes_the_detector_fail(line: str, begin: int, end: int) -> None:
    _judge(line[begin:end])
    assert RULES.judge(KernelLine(line[begin:end])) is None or SIEVE.passes(line[begin:end])
