"""Network card rules: messages of the drivers of network cards about cards, firmware and cables."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

# gpud reports each of these once a day; here an hour without another line clears the finding.
_QUIET_NS = HOUR_NS
_OVER = "no further message"


def _condition(name: str, meaning: str, mode: Mode = Mode.ADVISE) -> Condition:
    return Condition(
        name=name,
        component="link/PCI",
        meaning=meaning,
        source="message of the card's driver",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=mode,
    )


CONDITIONS = (
    Condition(
        name="NicUnrecoverable",
        component="link/PCI",
        meaning="the firmware of a network card has failed, or did not recover",
        source="message of the card's driver",
        clears_when="the node was rebooted",
        mode=Mode.ENFORCE,
    ),
    _condition("NicHealthLost", "the firmware of a network card has stopped counting its health"),
    _condition("NicCommandTimeout", "the firmware of a network card did not answer a command"),
    _condition("NicFault", "a network card, its driver or its cable reports an error of its own"),
    _condition("NicPowerLow", "a network card does not get enough power from its PCIe slot"),
    _condition("NicModuleHot", "the module in a port of a network card is too hot"),
    _condition(
        "NicRegisterRefused", "a network card refuses ACCESS_REG, often of a tool", Mode.OBSERVE
    ),
)


def _card(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    action: SuggestedAction = SuggestedAction.WATCH,
    severity: Severity = Severity.DEGRADED,
    *,
    driver: str = r"mlx[45]_(?:core|ib|en)",
    ends: bool = False,
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(rf"(?:{driver})\b.{{0,20}}? {PCI}.{{0,200}}?(?:{pattern})", re.I),
        condition=condition,
        component="link/{pci}",
        message=f"network card {{pci}}: {message}",
        severity=severity,
        action=action,
        ends=ends,
    )


_REBOOT, _REPAIR = SuggestedAction.REBOOT_NODE, SuggestedAction.REPAIR_HARDWARE
_FATAL, _INFO = Severity.FATAL, Severity.INFO
_BNXT, _INTEL = r"bnxt_(?:en|re)", "i40e|ice|ixgbe|igb|igc|e1000e|iavf|irdma"
_OTHERS = "ena|efa|gve|gvnic|qede|qed|bnx2x|cxgb4|hns3|ionic|idpf|hfi1|nfp|mana"
_NO_ANSWER = "its firmware did not answer a command"
_FAILED = "its firmware has failed"

RULES = (
    _card(
        "recover",
        r"unrecoverable|health recovery failed|recovery (?:flow )?failed|failed to recover",
        "NicUnrecoverable",
        "its firmware did not recover",
        _REBOOT,
        _FATAL,
    ),
    _card(
        "atal error",
        r"Fatal error \d+ detected|fatal error detected",
        "NicUnrecoverable",
        _FAILED,
        _REBOOT,
        _FATAL,
    ),
    _card(
        "nternal error detected",
        r"(?<!FW )internal error detected:",
        "NicUnrecoverable",
        _FAILED,
        _REBOOT,
        _FATAL,
        driver="mlx4_core",
    ),
    _card(
        "bad device here",
        r"handling bad device here",
        "NicUnrecoverable",
        _FAILED,
        _REBOOT,
        _FATAL,
    ),
    _card(
        "health compromised",
        r"health compromised",
        "NicHealthLost",
        "its firmware has stopped counting its health",
        _REBOOT,
    ),
    _card(
        "Health issue observed",
        r"Health issue observed, (?!High temp).{0,80}severity\(\d\) (?:EMERGENCY|ALERT|CRITICAL"
        r"|ERROR)",
        "NicFault",
        "its firmware reports a fault",
        _REBOOT,
    ),
    _card(
        ": synd 0x",
        r"synd 0x(?!0+\b)[0-9a-f]+: ",
        "NicFault",
        "its firmware reports a fault",
        _REBOOT,
    ),
    _card(
        "mlx5_core",
        r"\(0x[0-9a-f]+\) timeout|cmd(?:\[\w+\])?.{0,40} timeout\b|No done completion"
        r"|failed with error code -110|pre-initializing state, aborting",
        "NicCommandTimeout",
        _NO_ANSWER,
    ),
    _card("timed out", r"command 0x[0-9a-f]+ timed out", "NicCommandTimeout", _NO_ANSWER),
    _card(
        "bnxt_",
        r"Error \(timeout: \d+\)|timed ?out \(\d+\)\s?msec|HWRM (?:cmd|msg|req).{0,40}time[d ]*out"
        r"|Abandoning msg|No heartbeat|Firmware not responding|firmware is unresponsive"
        r"|FW (?:is )?not responding",
        "NicCommandTimeout",
        _NO_ANSWER,
        _REBOOT,
        driver=_BNXT,
    ),
    _card(
        "bnxt_",
        r"firmware (?:fatal|crash)|fatal firmware|Firmware reset failed|FW (?:crash|fatal)"
        r"|Resetting device failed|PCI I/O error detected",
        "NicUnrecoverable",
        _FAILED,
        _REBOOT,
        _FATAL,
        driver=_BNXT,
    ),
    _card(
        " critical error",
        r"(?:Firmware|FW|Global|PF) .{0,40}critical error",
        "NicFault",
        "its firmware reports a fault",
        _REBOOT,
        driver=_INTEL,
    ),
    _card(
        "Unit Hang",
        r"Detected (?:Tx|Hardware) Unit Hang",
        "NicFault",
        "it stopped sending",
        driver=_INTEL,
    ),
    _card(
        "atchdog timeout",
        r"Keep alive watchdog timeout",
        "NicCommandTimeout",
        _NO_ANSWER,
        driver=_OTHERS,
    ),
    _card(
        "eset attempt failed",
        r"Reset attempt failed",
        "NicUnrecoverable",
        "it could not be reset",
        _REBOOT,
        _FATAL,
        driver=_OTHERS,
    ),
    _card(
        "ower on the PCIe slot",
        r"insufficient power on the PCIe slot",
        "NicPowerLow",
        "it does not get enough power from its PCIe slot",
        _REPAIR,
    ),
    _card(
        "advertised sufficient power",
        r"PCIe slot advertised sufficient power",
        "NicPowerLow",
        "it gets enough power",
        ends=True,
    ),
    _card("igh temperature", r"high temperature", "NicModuleHot", "a module is too hot", _REPAIR),
    _card("High Temperature", r"high temperature", "NicModuleHot", "a module is too hot", _REPAIR),
    _card(
        "Cable error",
        r"Port module event(?:\[error\])?: .{0,40}Cable error",
        "NicFault",
        "the cable or module in a port has an error",
        _REPAIR,
    ),
    _card(
        "ACCESS_REG",
        r"ACCESS_REG\(0x[0-9a-f]+\).{0,60}failed",
        "NicRegisterRefused",
        "it refuses ACCESS_REG",
        severity=_INFO,
    ),
)
