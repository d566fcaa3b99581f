"""Network card rules: kernel messages about Mellanox and NVIDIA network cards (mlx5 driver)."""

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
        source="message of the mlx5 driver",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=mode,
    )


CONDITIONS = (
    Condition(
        name="NicUnrecoverable",
        component="link/PCI",
        meaning="the firmware of a network card has failed, or did not recover",
        source="message of the mlx5 driver",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    _condition("NicHealthLost", "the firmware of a network card has stopped counting its health"),
    _condition("NicCommandTimeout", "the firmware of a network card did not answer a command"),
    _condition("NicPowerLow", "a network card does not get enough power from its PCIe slot"),
    _condition("NicModuleHot", "the module in a port of a network card is too hot"),
    _condition(
        "NicRegisterRefused", "a network card refuses ACCESS_REG, often of a tool", Mode.OBSERVE
    ),
)


def _rule(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    action: SuggestedAction = SuggestedAction.WATCH,
    severity: Severity = Severity.DEGRADED,
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(rf"mlx5_(?:core|ib)\b.{{0,20}}? {PCI}.{{0,200}}?(?:{pattern})", re.I),
        condition=condition,
        component="link/{pci}",
        message=f"network card {{pci}}: {message}",
        severity=severity,
        action=action,
    )


_REBOOT = SuggestedAction.REBOOT_NODE

RULES = (
    _rule(
        "recover",
        r"unrecoverable|health recovery failed|recovery (?:flow )?failed",
        "NicUnrecoverable",
        "its firmware did not recover",
        _REBOOT,
    ),
    _rule(
        "Fatal error",
        r"Fatal error \d+ detected",
        "NicUnrecoverable",
        "its firmware has failed",
        _REBOOT,
    ),
    _rule(
        "health compromised",
        r"health compromised",
        "NicHealthLost",
        "its firmware has stopped counting its health",
        _REBOOT,
    ),
    _rule(
        "mlx5_core",
        r"\(0x[0-9a-f]+\) timeout|cmd(?:\[\w+\])?.{0,40} timeout\b|No done completion",
        "NicCommandTimeout",
        "its firmware did not answer a command",
    ),
    _rule(
        "insufficient power",
        r"insufficient power on the PCIe slot",
        "NicPowerLow",
        "it does not get enough power from its PCIe slot",
        SuggestedAction.REPAIR_HARDWARE,
    ),
    _rule(
        "igh temperature",
        r"high temperature",
        "NicModuleHot",
        "a module is too hot",
        SuggestedAction.REPAIR_HARDWARE,
    ),
    _rule(
        "High Temperature",
        r"high temperature",
        "NicModuleHot",
        "a module is too hot",
        SuggestedAction.REPAIR_HARDWARE,
    ),
    _rule(
        "ACCESS_REG",
        r"ACCESS_REG\(0x[0-9a-f]+\).{0,60}failed",
        "NicRegisterRefused",
        "it refuses ACCESS_REG",
        severity=Severity.INFO,
    ),
)
