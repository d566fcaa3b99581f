"""Accelerator rules: kernel messages of the drivers of AMD, Intel and Habana accelerators."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_DRIVERS = "message of the amdgpu, xe, i915 or habanalabs driver; not tried on their hardware"

# All are only observed (docs/decisions/011): they were written from the drivers' sources.
CONDITIONS = (
    Condition(
        name="AcceleratorReset",
        component="accelerator/PCI",
        meaning="the driver resets a GPU that stopped working; a program may have caused it",
        source=_DRIVERS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="AcceleratorMemoryUncorrected",
        component="accelerator/PCI",
        meaning="a GPU's memory or another of its parts had an error that was not corrected (RAS)",
        source=_DRIVERS,
        clears_when="the node was rebooted",
    ),
    Condition(
        name="AcceleratorFailed",
        component="accelerator/PCI",
        meaning="a GPU did not come back from a reset, could not be initialised, or left the bus",
        source=_DRIVERS,
        clears_when="the node was rebooted",
    ),
)

_MESSAGES = {
    "AcceleratorReset": "the driver resets it",
    "AcceleratorMemoryUncorrected": "an error in its memory was not corrected",
    "AcceleratorFailed": "its driver has given it up",
}
_GRADES = {
    "AcceleratorReset": (Severity.DEGRADED, SuggestedAction.WATCH),
    "AcceleratorMemoryUncorrected": (Severity.DEGRADED, SuggestedAction.RESET_DEVICE),
    "AcceleratorFailed": (Severity.FATAL, SuggestedAction.REBOOT_NODE),
}


def _rule(needle: str, pattern: str, condition: str, driver: str = "amdgpu") -> LineRule:
    severity, action = _GRADES[condition]
    return LineRule(
        needle=needle,
        pattern=re.compile(rf"(?:{driver}) {PCI}: (?:amdgpu: |\[drm\] ?)?.{{0,80}}?(?:{pattern})"),
        condition=condition,
        component="accelerator/{pci}",
        message=f"accelerator {{pci}}: {_MESSAGES[condition]}",
        severity=severity,
        action=action,
    )


def _unnamed(needle: str, pattern: str) -> LineRule:
    """Return the rule for messages that do not say which GPU they are about."""
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="AcceleratorReset",
        component="accelerator/amdgpu",
        message="an AMD GPU has stopped working; the driver resets it",
    )


RULES = (
    _rule("GPU reset", r"GPU reset(?:\(\d+\))? (?:failed|end with ret = -)", "AcceleratorFailed"),
    _rule("ASIC reset", r"ASIC reset failed", "AcceleratorFailed"),
    _rule("atal error during GPU init", r"[Ff]atal error during GPU init", "AcceleratorFailed"),
    _rule("device lost from bus", r"device lost from bus", "AcceleratorFailed"),
    _rule("ip_init failed", r"amdgpu_device_ip_init failed", "AcceleratorFailed"),
    _rule(
        "uncorrectable hardware error",
        r"(?<!\d)[1-9]\d* (?:new )?uncorrectable hardware errors? detected",
        "AcceleratorMemoryUncorrected",
    ),
    _rule("RAS poison", r"RAS poison", "AcceleratorMemoryUncorrected"),
    _rule(
        "uncorrectable hardware error(",
        r"uncorrectable hardware error\(\w{1,40}\) detected",
        "AcceleratorMemoryUncorrected",
    ),
    _rule("GPU reset begin", r"GPU reset begin", "AcceleratorReset"),
    _rule("GPU reset(", r"GPU reset\(\d+\) succeeded", "AcceleratorReset"),
    _rule("VRAM is lost", r"VRAM is lost due to GPU reset", "AcceleratorReset"),
    _rule("timeout", r"ring \S{1,32} timeout(?!, but soft)", "AcceleratorReset"),
    _unnamed(
        "amdgpu_job_timedout",
        r"\[drm:amdgpu_job_timedout[^\]]{0,40}\]{1,2} \*ERROR\* (?!.{0,40}soft)",
    ),
    _unnamed("wait loop timeout expired", r"amdgpu: qcm fence wait loop timeout expired"),
    _unnamed(
        "preemption",
        r"amdgpu: .{0,120}(?:preemption time ?out|unsuccessful queues preemption)",
    ),
    _rule("GPU HANG", r"GPU HANG", "AcceleratorReset", "i915|xe"),
    _rule("Resetting ", r"Resetting (?:chip|[a-z]{2,4}\d) for", "AcceleratorReset", "i915"),
    _rule(
        "] GT",
        r"(?:GT\d: |Tile\d: )*(?:trying )?reset (?:queued|started|from)|GuC .{0,30}reset",
        "AcceleratorReset",
        "xe",
    ),
    _rule("declared wedged", r"evice declared wedged", "AcceleratorFailed", "xe"),
    _rule(
        "habanalabs",
        r"Going to (?:hard-)?reset device|Device heartbeat failed",
        "AcceleratorReset",
        r"habanalabs(?: hl\d+)?",
    ),
    _rule(
        "habanalabs",
        r"device is unusable|Failed to (?:initialize|reset)|failed hard reset",
        "AcceleratorFailed",
        r"habanalabs(?: hl\d+)?",
    ),
)
