"""Fabric manager rules: what NVIDIA's fabric manager writes to its own log, no kernel messages.

Its service stays active while it refuses what jobs ask of it, so only the log tells.
"""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_LOG = "log of nv-fabricmanager; gpud and NVIDIA's Fabric Manager guide"
_MANAGER = "fabric/manager"

CONDITIONS = (
    Condition(
        name="FabricSwitchFatal",
        component="nvswitch/PCI",
        meaning="the fabric manager detected a fatal error of an NVSwitch",
        source=_LOG,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FabricSwitchError",
        component="nvswitch/PCI",
        meaning="the fabric manager detected an error of an NVSwitch that is not fatal",
        source=_LOG,
        clears_when="no further message",
        quiet_ns=HOUR_NS,
    ),
    Condition(
        name="FabricMulticastFailed",
        component=_MANAGER,
        meaning="the fabric manager could not set up multicast between GPUs (NVLS): jobs that use "
        "it fail or wait, while its service is active",
        source=_LOG,
        clears_when="no further message",
        quiet_ns=HOUR_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FabricManagerAborted",
        component=_MANAGER,
        meaning="the fabric manager gave up: the NVSwitches are not those of a known machine, or "
        "links did not train",
        source=_LOG,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
)

# "[Jul 23 2024 07:53:55] [ERROR] [tid 841] …"; behind a program's name in the journal, nothing.
_HEAD = r"(?:\[[\w :]{8,32}\] )?(?:\[\w{4,8}\] )?(?:\[tid \d{1,9}\] )?"
_SWITCH = (
    r"on fid \d+ on NVSwitch pci bus id (?P<pci>[0-9a-fA-F:.]{10,16}) physical id \d+"
    r"(?: port (?P<port>\d+))?"
)


def _switch(word: str, condition: str, severity: Severity) -> LineRule:
    return LineRule(
        needle=f"detected NVSwitch {word} error",
        pattern=re.compile(rf"{_HEAD}detected NVSwitch {word} error (?P<code>\d+) {_SWITCH}"),
        condition=condition,
        component="nvswitch/{pci}",
        message=f"NVSwitch {{pci}}, port {{port}}: {word} error {{code}}, says the fabric manager",
        severity=severity,
        action=SuggestedAction.REBOOT_NODE if severity is Severity.FATAL else SuggestedAction.WATCH,
    )


def _manager(needle: str, pattern: str, condition: str, message: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(_HEAD + pattern),
        condition=condition,
        component=_MANAGER,
        message=message,
        action=SuggestedAction.REBOOT_NODE,
    )


_NO_MULTICAST = "the fabric manager cannot set up multicast between GPUs (NVLS)"

RULES = (
    _switch("fatal", "FabricSwitchFatal", Severity.FATAL),
    _switch("non-fatal", "FabricSwitchError", Severity.INFO),
    _manager(
        "in the multicast team",
        r"failed to find the GPU handle \d+ in the multicast team",
        "FabricMulticastFailed",
        _NO_MULTICAST,
    ),
    _manager(
        "multicast",
        r"(?:failed to|unable to|cannot) .{0,80}multicast (?:team|group)",
        "FabricMulticastFailed",
        _NO_MULTICAST,
    ),
    _manager(
        "aborting fabric manager",
        r"(?:detected|failed|unable) [\w' ,:.()-]{0,160}aborting fabric manager",
        "FabricManagerAborted",
        "the fabric manager gave up",
    ),
)
