"""Hardware rules: kernel messages about processors and memory modules."""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OVER = "no further message"
_MACHINE = "host/hardware"
_MEMORY = "host/memory"
_INFO = Severity.INFO
_REPAIR = SuggestedAction.REPAIR_HARDWARE
# "mce: [Hardware Error]: " and "{1}[Hardware Error]: " before a record's words.
_HARDWARE = r"(?:\{\d{1,9}\})?\[Hardware Error\]: +"

CONDITIONS = (
    Condition(
        name="MachineCheckFatal",
        component=_MACHINE,
        meaning="processor or firmware recorded a fatal hardware error (CPER, machine check), in "
        "this boot or as the end of the one before",
        source="the record's own word",
        clears_when="the node was rebooted",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="MachineCheckUncorrected",
        component=_MACHINE,
        meaning="the processor reported an error that was not corrected (machine check, CPER)",
        source="kernel message",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="CpuTooHot",
        component="host/cpu",
        meaning="a processor is above its temperature threshold, and its clock is throttled",
        source="kernel message",
        clears_when="the kernel says that the temperature is normal; or no further message",
        quiet_ns=_QUIET_NS,
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
)


_GRADES = {
    "Corrected": ("a corrected error", _INFO, SuggestedAction.WATCH),
    "Uncorrected": ("an error that was not corrected", Severity.DEGRADED, _REPAIR),
    "Fatal": ("a fatal error", Severity.FATAL, _REPAIR),
}


def _machine(needle: str, pattern: str, grade: str) -> LineRule:
    what, severity, action = _GRADES[grade]
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=f"MachineCheck{grade}",
        component=_MACHINE,
        message=f"processor or firmware reported {what}",
        severity=severity,
        action=action,
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


RULES = (
    _memory(
        "EDAC ",
        r"EDAC (?P<where>MC\d+): (?:\d+ )?UE (?:[\w -]{0,60}(?:error|on )|page |row )",
        corrected=False,
    ),
    _memory(
        "EDAC ",
        r"EDAC (?P<where>MC\d+): (?:\d+ )?CE (?:[\w -]{0,60}(?:error|on )|page |row )",
        corrected=True,
    ),
    _memory("EDAC ", r"EDAC (?P<where>\w{1,16} MC\d+): HANDLING .{0,10}MEMORY ERR", corrected=True),
    _memory(
        "Memory failure: 0x",
        r"Memory failure: (?P<where>0x[0-9a-f]+): (?:recovery action for |unhandlable page"
        r"|Sending SIGBUS to |Killing )",
        corrected=False,
    ),
    _machine("event severity: fatal", rf"{_HARDWARE}event severity: fatal", "Fatal"),
    _machine("Machine check: ", rf"{_HARDWARE}Machine check: [A-Z]", "Fatal"),
    _machine("System Fatal error", rf"{_HARDWARE}System Fatal error", "Fatal"),
    _machine("achine check", r"mce: .{0,20}Fatal (?:local )?[mM]achine check", "Fatal"),
    _machine(
        "Machine Check Exception", r"CPU \d+: Machine Check Exception: *[0-9a-f]", "Uncorrected"
    ),
    _machine("Uncorrected hardware memory", r"mce: Uncorrected hardware memory", "Uncorrected"),
    _machine("[Hardware Error]", rf"{_HARDWARE}Uncorrected", "Uncorrected"),
    _machine("[Hardware Error]", rf"{_HARDWARE}Deferred error", "Uncorrected"),
    _machine("[Hardware Error]", rf"{_HARDWARE}event severity: recoverable", "Uncorrected"),
    _machine("[Hardware Error]", rf"{_HARDWARE}event severity: corrected", "Corrected"),
    _machine("[Hardware Error]", rf"{_HARDWARE}Corrected error", "Corrected"),
    _machine("[Hardware Error]", r"CPU:? ?\d+: Machine Check: *[0-9a-f]+ Bank", "Corrected"),
    _machine("Machine check events logged", r"Machine check events logged", "Corrected"),
    LineRule(
        needle="emperature",
        pattern=re.compile(
            r"CPU\d+: (?:Core|Package) temperature (?:is )?above threshold, cpu clock (?:is"
            r" )?throttled"
        ),
        condition="CpuTooHot",
        component="host/cpu",
        message="a processor is too hot and slows down",
    ),
    LineRule(
        needle="emperature",
        pattern=re.compile(r"CPU\d+: (?:Core|Package) temperature/speed normal"),
        condition="CpuTooHot",
        component="host/cpu",
        message="the temperature is normal",
        ends=True,
    ),
)
