"""What an Xid code means for the node, for drivers that do not say it themselves.

Source: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, column "immediate action"), read
in 2026-08. Field 230 and Xid 154 of newer drivers are conditions of their own beside it; a code
that is not here is counted and shown, and nothing is done about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from everstep_common.findings import Severity, SuggestedAction


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """What one code says."""

    name: str
    severity: Severity
    action: SuggestedAction


def _rows(
    severity: Severity, action: SuggestedAction, names: Mapping[int, str]
) -> dict[int, XidMeaning]:
    return {code: XidMeaning(name, severity, action) for code, name in names.items()}


# Raised by a faulty program on a healthy GPU (catalogue: RESTART_APP or IGNORE).
APPLICATION_XIDS: Mapping[int, str] = MappingProxyType(
    {
        8: "FIFO idle timeout",
        11: "invalid method",
        13: "graphics engine exception",
        25: "invalid or corrupted push buffer",
        31: "memory page fault",
        32: "PBDMA error",
        37: "unimplemented firmware method",
        38: "watchdog of the front end",
        39: "copy engine exception",
        43: "channel was reset",
        44: "fault during context switch",
        45: "channels were removed after another error or a kill",
        60: "SEC2 error",
        66: "illegal access by a driver method",
        67: "verification violation",
        68: "video decoder exception",
        69: "graphics class error",
        80: "corrupted push buffer",
        137: "NVLink privilege error",
    }
)

NODE_XIDS: Mapping[int, XidMeaning] = MappingProxyType(
    {
        # Catalogue: RESET_GPU (48: its workflow ends in a reset, too).
        **_rows(
            Severity.FATAL,
            SuggestedAction.RESET_DEVICE,
            {
                46: "GPU stopped processing",
                48: "double-bit ECC error",
                62: "power controller halted",
                64: "row remapping or page retirement failed",
                95: "uncontained memory error",
                109: "context switch timeout",
                110: "security fault",
                119: "GSP did not answer",
                120: "GSP error",
                136: "NVLink training failed",
                140: "unrecovered ECC error",
                143: "GPU initialisation failed",
                155: "NVLink software-defined error",
                156: "resource retirement",
                158: "fatal timeout",
            },
        ),
        # Catalogue: RESTART_BM and RESTART_VM.
        **_rows(
            Severity.FATAL,
            SuggestedAction.REBOOT_NODE,
            {79: "GPU has fallen off the bus", 151: "key rotation error"},
        ),
        # Catalogue: WORKFLOW_NVLINK_ERR, which ends in a reset or with a technician.
        **_rows(Severity.FATAL, SuggestedAction.REPAIR_HARDWARE, {74: "NVLink error"}),
        # The job may die, the GPU goes on; or the register decode that would decide is not here yet
        # (144 to 150).
        **_rows(
            Severity.DEGRADED,
            SuggestedAction.WATCH,
            {
                63: "row remapped or page retired",
                92: "high rate of corrected ECC errors",
                93: "InfoROM erase limit exceeded",
                94: "contained memory error",
                121: "chip-to-chip link error",
                144: "NVLink SAW error",
                145: "NVLink RLW error",
                146: "NVLink TLW error",
                147: "NVLink TREX error",
                148: "NVLink control error",
                149: "NVLink NETIR error",
                150: "NVLink MSE error",
                157: "resource retirement failed",
                160: "channel retirement",
                161: "channel retirement failed",
            },
        ),
        # Catalogue: CONTACT_SUPPORT and CHECK_MECHANICALS.
        **_rows(
            Severity.DEGRADED,
            SuggestedAction.REPAIR_HARDWARE,
            {
                54: "auxiliary power is not connected",
                61: "power controller breakpoint",
                123: "power controller write failed",
                142: "video encoder error",
            },
        ),
    }
)
