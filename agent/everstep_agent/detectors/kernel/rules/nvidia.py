"""NVIDIA driver rules: what the driver writes to the kernel log besides Xid errors."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_WORDS = "reported by the driver"
_QUIET_NS = HOUR_NS

CONDITIONS = (
    Condition(
        name="FallenOffTheBus",
        component="gpu/PCI",
        meaning="the driver says that a GPU has fallen off the bus",
        source=_WORDS,
        clears_when="the node was rebooted and the GPU answers",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuInitFailed",
        component="gpu/PCI",
        meaning="the driver could not initialise a GPU (RmInitAdapter failed)",
        source=_WORDS,
        clears_when="the node was rebooted and the GPU answers",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvlinkDetectFailed",
        component="driver/nvidia",
        meaning="the driver could not set up the links between GPUs (Rx Detect Link mask)",
        source="gpud: seen where the fabric manager does not come up",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvlinkDegraded",
        component="driver/nvidia",
        meaning="the driver marked a GPU as degraded: it runs without NVLink until it is reset",
        source=_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GspFailed",
        component="driver/nvidia",
        meaning="the processor of a GPU that runs its driver (GSP) did not answer; an Xid 119 or "
        "120 names the GPU",
        source=_WORDS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="PeermemInvalidContext",
        component="driver/nvidia_peermem",
        meaning="nvidia-peermem lost the context of a transfer between GPU and network card",
        source=_WORDS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
)

_REBOOT = SuggestedAction.REBOOT_NODE

# The first of the lines into which the driver breaks "The NVIDIA GPU 0000:3b:00.0 (PCI ID: …)
# installed in this system has fallen off the bus and is not responding to commands."
NAMED_GPU_NEEDLE = "NVRM: The NVIDIA GPU"
FALLEN_NEEDLE = "fallen off the bus"

# "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  …", and of the open modules: "NVRM:
# loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  …"
DRIVER_VERSION = re.compile(
    r"NVRM: loading NVIDIA UNIX .{0,60}? (?P<version>\d{3,4}\.\d[\d.]{0,12})"
)


def _undetected(needle: str, pattern: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="NvlinkDetectFailed",
        component="driver/nvidia",
        message="the driver could not set up the links between GPUs",
        action=_REBOOT,
    )


RULES = (
    # Two forms without an Xid: "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus." and "NVRM: The
    # NVIDIA GPU 0000:3b:00.0 … NVRM: fallen off the bus and is not responding to commands."
    LineRule(
        needle=FALLEN_NEEDLE,
        pattern=re.compile(rf"NVRM: (?!Xid).{{0,300}}?GPU (?:at )?{PCI}"),
        condition="FallenOffTheBus",
        component="gpu/{pci}",
        message="GPU {pci} has fallen off the bus",
        severity=Severity.FATAL,
        action=_REBOOT,
    ),
    LineRule(
        needle="RmInitAdapter failed",
        pattern=re.compile(rf"NVRM: GPU {PCI}: RmInitAdapter failed"),
        condition="GpuInitFailed",
        component="gpu/{pci}",
        message="the driver could not initialise GPU {pci}",
        severity=Severity.FATAL,
        action=_REBOOT,
    ),
    LineRule(
        needle="rm_init_adapter",
        pattern=re.compile(r"NVRM: rm_init_adapter(?: failed|\(\d+\) failed)"),
        condition="GpuInitFailed",
        component="driver/nvidia",
        message="the driver could not initialise a GPU",
        severity=Severity.FATAL,
        action=_REBOOT,
    ),
    LineRule(
        needle="failed with error",
        pattern=re.compile(rf"nvidia: probe of {PCI} failed with error"),
        condition="GpuInitFailed",
        component="gpu/{pci}",
        message="the driver could not initialise GPU {pci}",
        severity=Severity.FATAL,
        action=_REBOOT,
    ),
    LineRule(
        needle="GSP",
        pattern=re.compile(
            r"NVRM: (?:GPU\d+ )?(?:\w{1,60}: )?(?:\*+ GSP (?:Timeout|Failure|Hang)"
            r"|GSP RM heartbeat timed out|"
            r"Timeout waiting for RPC from GSP)"
        ),
        condition="GspFailed",
        component="driver/nvidia",
        message="the processor of a GPU that runs its driver (GSP) does not answer",
    ),
    LineRule(
        needle="marked Degraded",
        pattern=re.compile(
            r"NVRM: (?:GPU\d+ )?knvlinkSetDegradedMode\w*: (?P<gpu>GPU\d+) marked Degraded"
        ),
        condition="NvlinkDegraded",
        component="driver/nvidia",
        message="the driver runs {gpu} without NVLink after an error of a link",
        severity=Severity.FATAL,
        action=SuggestedAction.RESET_DEVICE,
    ),
    _undetected("Rx Detect Link mask", r"Failed to update Rx Detect Link mask"),
    _undetected("postRxDetLinkMask", r"Getting peer\d+'s postRxDetLinkMask failed"),
    LineRule(
        needle="detected invalid context",
        pattern=re.compile(r"nvidia-peermem .{0,80}ERROR detected invalid context"),
        condition="PeermemInvalidContext",
        component="driver/nvidia_peermem",
        message="nvidia-peermem lost the context of a transfer between GPU and network card",
    ),
)
