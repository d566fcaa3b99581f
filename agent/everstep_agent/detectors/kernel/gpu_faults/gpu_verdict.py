"""Xid verdict: decided by the operator's override, else the driver, else the table of Xids."""

from dataclasses import dataclass
from enum import Enum

from everstep_agent.detectors.gpus.presence import RecoveryAction
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.nvlink_tables import (
    Nvlink5Action,
    Xid74Class,
    decode,
    is_fatal,
    nvlink5_error,
    xid74_error,
    xid74_meaning,
)
from everstep_agent.detectors.kernel.gpu_faults.xid_table import XidRow
from everstep_common.judging.findings import Severity, SuggestedAction

OPERATOR_RULE = "operator override"
FIELD_230_RULE = "NVML field 230"
XID_154_RULE = "Xid 154"
UNKNOWN_RULE = "unknown Xid"


class XidOverride(Enum):
    """Override of an operator for an Xid: to ignore it, or what to do."""

    IGNORE = "ignore"
    WATCH = "watch"
    RESTART_JOB = "restart_job"
    RESET_DEVICE = "reset_device"
    REBOOT_NODE = "reboot_node"
    REPAIR_HARDWARE = "repair_hardware"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an Xid; severity None: no finding. ``why`` completes the message."""

    severity: Severity | None
    action: SuggestedAction
    rule: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class DriverAdvice:
    """Action that the driver itself asks for, and where it said so."""

    action: RecoveryAction
    rule: str


# Draining peer-to-peer traffic leaves the GPU working; all others need the job off it.
_DRIVER_ACTIONS = {
    RecoveryAction.NONE: (
        Severity.DEGRADED,
        SuggestedAction.WATCH,
        "the driver suggests no action",
    ),
    RecoveryAction.GPU_RESET: (
        Severity.FATAL,
        SuggestedAction.RESET_DEVICE,
        "the driver asks for a reset of the GPU",
    ),
    RecoveryAction.NODE_REBOOT: (
        Severity.FATAL,
        SuggestedAction.REBOOT_NODE,
        "the driver asks for a reboot",
    ),
    RecoveryAction.DRAIN_P2P: (
        Severity.DEGRADED,
        SuggestedAction.WATCH,
        "the driver asks to end transfers between GPUs",
    ),
    RecoveryAction.DRAIN_AND_RESET: (
        Severity.FATAL,
        SuggestedAction.RESET_DEVICE,
        "the driver asks to drain and reset the GPU",
    ),
}
_OVERRIDE_FATAL = {XidOverride.RESET_DEVICE, XidOverride.REBOOT_NODE, XidOverride.REPAIR_HARDWARE}


def decide(
    table: Verdict,
    row: XidRow | None,
    override: XidOverride | None,
    advice: DriverAdvice | None,
) -> Verdict:
    """Return the verdict of the first rule that can tell.

    ``table`` is what the tables say, ``advice`` what the driver asks for: None, where its version
    does not speak about this code, or nothing fresh is known.
    """
    if override is not None:
        return _operators(override)
    if advice is None or row is None or row.severity is None:
        return table
    if advice.action is RecoveryAction.NONE and table.severity in (None, Severity.INFO):
        # The driver asks for no action, and the tables do not call it a fault: neither raises it.
        return table
    if advice.action is RecoveryAction.NONE and table is _RESET_WHEN_IDLE:
        # It asks for none at once; its own text asks for a reset later.
        return table
    return by_driver(advice)


def by_driver(advice: DriverAdvice) -> Verdict:
    """Return the verdict of the driver itself."""
    severity, action, why = _DRIVER_ACTIONS[advice.action]
    return Verdict(severity, action, advice.rule, why)


def _operators(override: XidOverride) -> Verdict:
    if override is XidOverride.IGNORE:
        return Verdict(None, SuggestedAction.NONE, OPERATOR_RULE)
    severity = Severity.FATAL if override in _OVERRIDE_FATAL else Severity.DEGRADED
    return Verdict(severity, SuggestedAction(override.value), OPERATOR_RULE)


def by_tables(code: int, text: str, tables: FaultTables, branch: int | None) -> Verdict:
    """Return what the tables say of an Xid of a driver of this branch (None: unknown)."""
    row = tables.xids.row(code, branch)
    if row is None and is_fatal(text):
        why = "which is in no table; the driver calls it fatal"
        return Verdict(Severity.DEGRADED, SuggestedAction.WATCH, UNKNOWN_RULE, why)
    if row is None:
        why = "which is in no table: shown, not acted on"
        return Verdict(Severity.INFO, SuggestedAction.NONE, UNKNOWN_RULE, why)
    special = None
    if code == 74:
        special = _by_registers(text, tables)
    elif 144 <= code <= 150:
        special = _by_decoding(code, text, tables, branch)
    elif code == 63 and "reset" in text.lower():
        special = _RESET_WHEN_IDLE
    elif row.severity is Severity.INFO and is_fatal(text):
        why = "the driver calls it fatal"
        special = Verdict(Severity.DEGRADED, row.action, f"Xid table: {code}", why)
    return special or Verdict(row.severity, row.action, f"Xid table: {code}")


# "63, Row Remapper: New row (0x…) marked for remapping, reset gpu to activate."
_RESET_WHEN_IDLE = Verdict(
    Severity.DEGRADED,
    SuggestedAction.RESET_DEVICE,
    "Xid table: 63",
    "the new memory row is used after a reset: reset the GPU when it is idle",
)


def _by_decoding(code: int, text: str, tables: FaultTables, branch: int | None) -> Verdict | None:
    error = nvlink5_error(code, text)
    if error is None:
        return None
    rule, where = f"NVLink5 table: {code}", f"{error.unit} of link {error.link}"
    match decode(tables.nvlink5, error, branch):
        case Nvlink5Action.IGNORE:
            return Verdict(None, SuggestedAction.NONE, rule, where)
        case Nvlink5Action.RESET:
            return Verdict(Severity.FATAL, SuggestedAction.RESET_DEVICE, rule, where)
        case Nvlink5Action.FOLLOW_154:
            why = f"{where}: the driver's next word decides (Xid 154)"
            return Verdict(Severity.DEGRADED, SuggestedAction.WATCH, rule, why)
        case None:
            why = f"{where}, the driver calls it {error.word}; no row of the decode table fits"
            fatal = is_fatal(error.word)
            action = SuggestedAction.RESET_DEVICE if fatal else SuggestedAction.WATCH
            return Verdict(Severity.DEGRADED, action, f"Xid table: {code}", why)


_XID_74 = {
    Xid74Class.IGNORE: (None, SuggestedAction.NONE),
    Xid74Class.THRESHOLD: (Severity.DEGRADED, SuggestedAction.WATCH),
    Xid74Class.SYMPATHETIC: (Severity.DEGRADED, SuggestedAction.WATCH),
    Xid74Class.SIGNAL: (Severity.FATAL, SuggestedAction.REPAIR_HARDWARE),
    Xid74Class.REPEATS: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
    Xid74Class.FABRIC_RESET: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
    Xid74Class.HARDWARE: (Severity.FATAL, SuggestedAction.REPAIR_HARDWARE),
}


def _by_registers(text: str, tables: FaultTables) -> Verdict | None:
    error = xid74_error(text)
    row = xid74_meaning(tables.xid74, error) if error else None
    if error is None or row is None:
        return None
    severity, action = _XID_74[row.kind]
    why = f"link {error.link}, register {row.register}: {row.name}"
    return Verdict(severity, action, f"Xid 74 registers: {row.kind.value}", why)
