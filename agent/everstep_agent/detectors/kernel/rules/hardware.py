"""Hardware rules: kernel messages about processors, memory modules and the PCI bus."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OVER = "no further message"
_MACHINE = "host/hardware"
_MEMORY = "host/memory"
_INFO, _FATAL = Severity.INFO, Severity.FATAL
_REPAIR, _REBOOT = SuggestedAction.REPAIR_HARDWARE, SuggestedAction.REBOOT_NODE

CONDITIONS = (
    Condition(
        name="MachineCheckFatal",
        component=_MACHINE,
        meaning="the processor reported an error that was not corrected (machine check, CPER)",
        source="kernel message",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MachineCheckCorrected",
        component=_MACHINE,
        meaning="the processor or firmware corrected an error",
        source="any; other node health checks need more than nine",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="MemoryErrorUncorrected",
        component=_MEMORY,
        meaning="a memory module had an error that was not corrected (EDAC UE, poisoned page)",
        source="kernel message",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MemoryErrorCorrected",
        component=_MEMORY,
        meaning="a memory module had an error that was corrected (EDAC CE)",
        source="any; their rate is judged from the counters of sysfs",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="PcieErrorFatal",
        component="pcie/PCI",
        meaning="a device reported an uncorrected fatal PCIe error (AER)",
        source="kernel message; the link is reset by it",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieErrorUncorrected",
        component="pcie/PCI",
        meaning="a device reported an uncorrected, not fatal PCIe error (AER)",
        source="kernel message; a transfer was lost",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PcieErrorCorrected",
        component="pcie/PCI",
        meaning="a device reported a corrected PCIe error (AER): the link repeats itself",
        source="any; it costs bandwidth when it goes on",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
)


def _machine(needle: str, pattern: str, *, corrected: bool) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="MachineCheckCorrected" if corrected else "MachineCheckFatal",
        component=_MACHINE,
        message=f"the processor reported {'a corrected error' if corrected else 'an error'}",
        severity=_INFO if corrected else Severity.DEGRADED,
        action=SuggestedAction.WATCH if corrected else _REPAIR,
    )


def _memory(needle: str, pattern: str, *, corrected: bool) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="MemoryErrorCorrected" if corrected else "MemoryErrorUncorrected",
        component=_MEMORY,
        message=f"a memory error was {'' if corrected else 'not '}corrected: {{where}}",
        severity=_INFO if corrected else Severity.DEGRADED,
        action=SuggestedAction.WATCH if corrected else _REPAIR,
    )


def _pcie(needle: str, pattern: str, grade: str) -> LineRule:
    severity, action = {
        "Corrected": (_INFO, SuggestedAction.WATCH),
        "Uncorrected": (Severity.DEGRADED, SuggestedAction.WATCH),
        "Fatal": (_FATAL, _REBOOT),
    }[grade]
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=f"PcieError{grade}",
        component="pcie/{pci}",
        message=f"PCIe error of {{pci}}: {grade.lower()}",
        severity=severity,
        action=action,
    )


# "AER: Corrected error received: 0000:3b:00.0", newer: "AER: Correctable error message received
# from 0000:3b:00.0"; "Multiple " may stand before the grade.
_AER_FROM = rf" error (?:message )?received(?: from|:) {PCI}"
_BUS = rf"{PCI}: (?:AER: )?PCIe Bus Error: severity="

RULES = (
    _pcie("AER: ", rf"(?:Corrected|Correctable){_AER_FROM}", "Corrected"),
    _pcie("AER: ", rf"Uncorrect(?:ed|able) \(Non-Fatal\){_AER_FROM}", "Uncorrected"),
    _pcie("AER: ", rf"Uncorrect(?:ed|able) \(Fatal\){_AER_FROM}", "Fatal"),
    _pcie("PCIe Bus Error", rf"{_BUS}Correct", "Corrected"),
    _pcie("PCIe Bus Error", rf"{_BUS}Uncorrect(?:ed|able) \(Non-Fatal\)", "Uncorrected"),
    _pcie("PCIe Bus Error", rf"{_BUS}Uncorrect(?:ed|able) \(Fatal\)", "Fatal"),
    _memory("EDAC ", r"EDAC (?P<where>MC\d+): \d+ UE ", corrected=False),
    _memory("EDAC ", r"EDAC (?P<where>MC\d+): \d+ CE ", corrected=True),
    _memory(
        "Memory failure: 0x",
        r"Memory failure: (?P<where>0x[0-9a-f]+): recovery action for ",
        corrected=False,
    ),
    _machine("Machine Check Exception", r"CPU \d+: Machine Check Exception:", corrected=False),
    _machine("Uncorrected hardware memory", r"mce: Uncorrected hardware memory", corrected=False),
    _machine("[Hardware Error]", r"\[Hardware Error\]: Uncorrected", corrected=False),
    _machine("[Hardware Error]", r"event severity: (?:recoverable|fatal)", corrected=False),
    _machine("[Hardware Error]", r"event severity: corrected", corrected=True),
    _machine("[Hardware Error]", r"\[Hardware Error\]: Corrected error", corrected=True),
    _machine("Machine check events logged", r"Machine check events logged", corrected=True),
)
