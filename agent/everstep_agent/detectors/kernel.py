"""Kernel log detector: what the kernel said about GPUs and file systems."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.detectors.condition import Condition
from everstep_agent.detectors.gpu import GpusReading, RecoveryAction, recovery_finding
from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_agent.detectors.open_finding import OpenFinding
from everstep_agent.detectors.xid_table import NODE_XIDS
from everstep_common.findings import Finding, Mode, Severity, SuggestedAction

# "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,4})\b,?\s*(?P<text>.*)"
)
# Two forms without an Xid: "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus." and
# "NVRM: The NVIDIA GPU 0000:3b:00.0 … NVRM: fallen off the bus and is not responding to commands."
_FALLEN = re.compile(
    r"NVRM: .*GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F.]+)"
)
_READ_ONLY = re.compile(
    r"\((?P<device>[\w!-]+)\): (?:re-?mounting|Remounting) filesystem read-only", re.I
)
_EVIDENCE_CHARS = 300
# KERN_WARNING, include/linux/kern_levels.h
_WARNING = 4
# Text of Xid 154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)".
_RECOVERY_TEXTS = {
    "none": RecoveryAction.NONE,
    "gpu reset required": RecoveryAction.GPU_RESET,
    "node reboot required": RecoveryAction.NODE_REBOOT,
    "drain p2p": RecoveryAction.DRAIN_P2P,
    "drain and reset": RecoveryAction.DRAIN_AND_RESET,
}
_CLEARED_BY_BOOT = ("XidFatal", "XidDegraded", "FallenOffTheBus")


CONDITIONS = (
    Condition(
        name="XidFatal",
        component="gpu/PCI",
        meaning="the driver logged an Xid with which a GPU cannot train",
        # The kernel never says that it is over, and a GPU that answers again after a reset may have
        # the same fault. An operator who knows better releases the node.
        source="NVIDIA's Xid catalogue",
        clears_when="the node was rebooted and the GPU answers",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="XidDegraded",
        component="gpu/PCI",
        meaning="the driver logged an Xid that tells of a fault, with which the GPU goes on",
        source="NVIDIA's Xid catalogue",
        clears_when="the node was rebooted and the GPU answers",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FallenOffTheBus",
        component="gpu/PCI",
        meaning="the driver says that a GPU has fallen off the bus",
        source="the driver's own words",
        clears_when="the node was rebooted and the GPU answers",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="FilesystemReadOnly",
        component="disk/DEVICE",
        meaning="the kernel made a file system read-only",
        source="the kernel's own words",
        clears_when="the file system is mounted writable in two looks",
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel message. ``injected``: it was written by a process, not by the kernel.

    ``level`` as syslog numbers it, 0 (emergency) to 7 (debug), and ``boot_ns``, when it was logged;
    None where the source does not say.
    """

    text: str
    injected: bool = False
    level: int | None = None
    boot_ns: int | None = None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """The driver reported an error of one GPU."""

    pci: str
    code: int
    text: str


def pci_address(text: str) -> str:
    """Return a PCI address the way Linux writes it: "0000:3b:00.0"."""
    domain, _, rest = text.lower().partition(":")
    if "." not in rest:
        rest += ".0"
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def xid_event(line: str) -> XidEvent | None:
    """Return the Xid in a kernel line, if there is one."""
    match = _XID.search(line)
    if match is None:
        return None
    return XidEvent(pci_address(match["pci"]), int(match["code"]), match["text"])


def worth_showing(line: KernelLine) -> bool:
    """Return whether an operator should see a line: a warning or worse, or one that we know."""
    if line.level is None or line.level <= _WARNING:
        return True
    return xid_event(line.text) is not None or _judge_line(line) is not None


def judge_kernel(lines: Iterable[KernelLine]) -> list[Judgement]:
    """Return what the kernel's words say about the node; faults of programs are no findings."""
    found = (_judge_line(line) for line in lines)
    return [judgement for judgement in found if judgement is not None]


def _judge_line(line: KernelLine) -> Judgement | None:
    if event := xid_event(line.text):
        return _judge_xid(event, line)
    if "fallen off the bus" in line.text and (fallen := _FALLEN.search(line.text)):
        pci = pci_address(fallen["pci"])
        message = f"GPU {pci} has fallen off the bus"
        return _gpu_fault(pci, "FallenOffTheBus", message, line, "kernel line: fallen off the bus")
    if read_only := _READ_ONLY.search(line.text):
        return Faulty(
            Finding(
                component=f"disk/{read_only['device']}",
                condition="FilesystemReadOnly",
                severity=Severity.DEGRADED,
                message=f"the kernel made the file system on {read_only['device']} read-only",
                evidence=line.text[:_EVIDENCE_CHARS],
                suggested_action=SuggestedAction.REPAIR_HARDWARE,
                rule="kernel line: remounting read-only",
                injected=line.injected,
            )
        )
    return None


def _gpu_fault(pci: str, condition: str, message: str, line: KernelLine, rule: str) -> Faulty:
    return Faulty(
        Finding(
            component=f"gpu/{pci}",
            condition=condition,
            severity=Severity.FATAL,
            message=message,
            evidence=line.text[:_EVIDENCE_CHARS],
            suggested_action=SuggestedAction.REBOOT_NODE,
            rule=rule,
            injected=line.injected,
        )
    )


def _judge_xid(event: XidEvent, line: KernelLine) -> Judgement | None:
    if event.code == 154:
        return _judge_xid_154(event, line)
    meaning = NODE_XIDS.get(event.code)
    if meaning is None:
        return None
    fatal = meaning.severity is Severity.FATAL
    return Faulty(
        Finding(
            component=f"gpu/{event.pci}",
            condition="XidFatal" if fatal else "XidDegraded",
            severity=meaning.severity,
            message=f"GPU {event.pci}: Xid {event.code}, {meaning.name}",
            evidence=line.text[:_EVIDENCE_CHARS],
            suggested_action=meaning.action,
            rule=f"Xid table: {event.code}",
            injected=line.injected,
        )
    )


def _judge_xid_154(event: XidEvent, line: KernelLine) -> Judgement | None:
    wanted = event.text.rpartition(" to ")[2].lower()
    action = next((a for text, a in _RECOVERY_TEXTS.items() if text in wanted), None)
    if action is None:
        return None
    return recovery_finding(
        event.pci, action, "Xid 154", line.text[:_EVIDENCE_CHARS], line.injected
    )


def judge_gpu_faults_over(
    open_findings: Iterable[OpenFinding], boot_id: str, gpus: GpusReading | None
) -> list[Judgement]:
    """Return which findings of kernel lines a new boot has ended: their GPU must answer in it."""
    return [
        _over(known, boot_id, gpus)
        for known in open_findings
        if known.finding.condition in _CLEARED_BY_BOOT
    ]


def _over(known: OpenFinding, boot_id: str, gpus: GpusReading | None) -> Judgement:
    key = known.finding.key
    if known.since.boot_id == boot_id:
        return Unknown(key, "the node was not rebooted since")
    pci = key.component.removeprefix("gpu/")
    found = next((gpu for gpu in gpus.gpus if gpu.pci == pci), None) if gpus else None
    if found is None or found.error:
        return Unknown(key, f"no healthy answer from GPU {pci} in the new boot")
    return Healthy(key, f"the node was rebooted and GPU {pci} answers")
