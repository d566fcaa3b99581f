"""Xid errors: the GPU errors that the NVIDIA driver logs, how they are parsed and classified."""

import re
from dataclasses import dataclass

from everstep_agent.detectors.gpus.presence import RecoveryAction
from everstep_agent.detectors.kernel.gpu_faults.nvlink_tables import is_fatal
from everstep_agent.detectors.kernel.gpu_faults.xid_history import (
    BURST_GAP_NS,
    BURSTS,
    EARLIER_BOOTS,
    WINDOW_NS,
)
from everstep_agent.detectors.kernel.rules.line import PCI, is_the_kernels, pci_address
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode

NEEDLE = "NVRM: "

_CATALOGUE = "operator, then NVML field 230, then Xid 154, then tables/xid.csv (NVIDIA's catalogue)"
_CLEARS = (
    "the driver suggests no action in ten polls (field 230, where it covers this Xid), or"
    " the node was rebooted and the GPU answers in ten polls"
)
_QUIET_NS = HOUR_NS

CONDITIONS = (
    Condition(
        name="XidFatal",
        component="gpu/PCI",
        # The kernel never says that it is over, and a GPU that answers again after a reset may have
        # the same fault. An operator who knows better releases the node.
        meaning="the driver logged an Xid with which a GPU cannot train",
        source=_CATALOGUE,
        clears_when=_CLEARS,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="XidDegraded",
        component="gpu/PCI",
        meaning="the driver logged an Xid that tells of a fault, with which the GPU goes on",
        source=_CATALOGUE,
        clears_when=_CLEARS,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="XidObserved",
        component="gpu/PCI",
        meaning="the driver logged an Xid that is in no table, or of which NVIDIA says no action",
        source="what is not known is shown and not acted on",
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="XidRepeats",
        component="gpu/PCI",
        meaning=f"a program's Xid came {BURSTS} times in {WINDOW_NS // HOUR_NS} h, at least "
        f"{BURST_GAP_NS // 10**9} s apart, on this GPU and no other: 31, or 13 on the same TPC",
        source="NVIDIA's workflows for Xid 13 and 31; numbers of NVSentinel",
        clears_when="no further message",
        quiet_ns=WINDOW_NS,
    ),
    Condition(
        name="PowerSmoothingOff",
        component="gpu/PCI",
        meaning="the circuit that smooths the power of a GPU has switched itself off (Xid 163)",
        source="reported by the driver",
        clears_when="the driver says that it is back (Xid 162), or the node was rebooted",
    ),
)

# The sentence for a fault that came back, which is then judged graver than the driver judges it.
REBOOTS_WORDS = f"it is back after {EARLIER_BOOTS} reboots"

# "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus." Old drivers
# write no "PCI:"; behind the address of a MIG instance stands " GPU-I:05".
_XID = re.compile(
    rf"NVRM: Xid \((?:GPU at )?{PCI}[^)]{{0,60}}\): (?P<code>\d{{1,5}})\b,?\s*(?P<text>.*)", re.S
)
_TEXT_DECIDES = frozenset({63, 74, *range(144, 151), 154})
_TPC = re.compile(r"\(GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})\b")

# "45, pid=1, name=python, channel 0x00000003 caused by previous Xid 145"
_CAUSE = re.compile(r"caused by previous Xid (?P<code>\d{1,5})\b")

# Xid 154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)". Newer drivers
# write "OS Reboot" and "PF FLR" in the brackets; only the number is the same in all of them.
_RECOVERY = re.compile(r"changed from .{0,60}? to 0x(?P<number>[0-9a-fA-F]{1,8})\b")
_RECOVERY_WORDS = {
    "none": RecoveryAction.NONE,
    "gpu reset required": RecoveryAction.GPU_RESET,
    "node reboot required": RecoveryAction.NODE_REBOOT,
    "drain p2p": RecoveryAction.DRAIN_P2P,
    "drain and reset": RecoveryAction.DRAIN_AND_RESET,
}


@dataclass(frozen=True, slots=True)
class XidEvent:
    """The driver reported an error of one GPU."""

    pci: str
    code: int
    text: str

    @property
    def needs_text(self) -> bool:
        """Return whether the code alone says too little without registers, units or words."""
        return self.code in _TEXT_DECIDES

    @property
    def essence(self) -> tuple[str, int, str]:
        """Return what two Xids have in common that say the same."""
        if self.needs_text or self.code == 13:
            return self.pci, self.code, self.text
        return self.pci, self.code, "fatal" if is_fatal(self.text) else ""

    @property
    def cause(self) -> int | None:
        """Return the Xid that this one follows, where the driver says so; this one is a victim."""
        match = _CAUSE.search(self.text)
        return int(match["code"]) if match else None

    @property
    def place(self) -> str:
        """Return where in the GPU an Xid 13 happened; empty where it does not say."""
        match = _TPC.search(self.text) if self.code == 13 else None
        return f"GPC {match['gpc']}, TPC {match['tpc']}" if match else ""


def xid_event(line: str) -> XidEvent | None:
    """Return the Xid in a kernel line, if there is one."""
    match = _XID.search(line) if NEEDLE in line else None
    if match is None or not is_the_kernels(match):
        return None
    return XidEvent(pci_address(match["pci"]), int(match["code"]), match["text"])


def recovery_action(text: str) -> RecoveryAction | None:
    """Return what the text of an Xid 154 asks for; None for what is not known."""
    if match := _RECOVERY.search(text):
        number = int(match["number"], 16)
        return RecoveryAction(number) if number in list(RecoveryAction) else None
    wanted = text.rpartition(" to ")[2].lower()
    return next((action for words, action in _RECOVERY_WORDS.items() if words in wanted), None)
