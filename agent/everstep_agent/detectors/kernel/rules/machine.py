"""Machine rules: kernel messages about crashes, stalls, and memory that ran out."""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

KERNEL = "host/kernel"
_QUIET_NS = HOUR_NS
_OVER = "no further message"
_OWN_WORDS = "kernel message"

CONDITIONS = (
    Condition(
        name="KernelPanic",
        component=KERNEL,
        meaning="the kernel wrote that it panics",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="KernelOops",
        component=KERNEL,
        meaning="the kernel hit a bug (Oops, BUG, general protection fault) and went on",
        source="the interrupted code keeps its locks until the next boot",
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="KernelLockup",
        component=KERNEL,
        meaning="a CPU did not get out of the kernel (soft lockup, hard lockup, RCU stall)",
        source="watchdog_thresh of the kernel: 20 s soft, 10 s hard; RCU 21 s",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="HungTask",
        component=KERNEL,
        meaning="a task has waited in the kernel for longer than hung_task_timeout_secs",
        source="120 s by default; the kernel reports it at most ten times per boot",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NodeOutOfMemory",
        component="host/memory",
        meaning="the node ran out of memory, and the kernel killed a process",
        source=_OWN_WORDS,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="JobOutOfMemory",
        component="host/memory",
        meaning="a control group reached its own limit of memory; no fault of the node",
        source=_OWN_WORDS,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="NcclCrash",
        component="service/nccl",
        meaning="a process crashed inside libnccl",
        source="gpud: the first sign of a wrong driver or library on a node",
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
    ),
)

_REBOOT = SuggestedAction.REBOOT_NODE


def _lockup(needle: str, pattern: str, what: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="KernelLockup",
        component=KERNEL,
        message=what,
        action=_REBOOT,
    )


def _oops(needle: str, pattern: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="KernelOops",
        component=KERNEL,
        message="the kernel hit a bug: {what}",
        action=_REBOOT,
    )


RULES = (
    LineRule(
        needle="Kernel panic - not syncing",
        pattern=re.compile(r"Kernel panic - not syncing:? ?(?P<what>.{0,100})"),
        condition="KernelPanic",
        component=KERNEL,
        message="the kernel panicked: {what}",
        severity=Severity.FATAL,
        action=_REBOOT,
    ),
    _lockup("soft lockup", r"BUG: soft lockup - CPU#\d+ stuck", "a CPU is stuck in the kernel"),
    _lockup("hard LOCKUP", r"hard LOCKUP on cpu", "a CPU is stuck with interrupts off"),
    _lockup("self-detected stall", r"self-detected stall on", "a CPU holds up the kernel (RCU)"),
    _lockup("detected stalls on", r"detected (?:expedited )?stalls on", "a task holds up RCU"),
    _oops("NULL pointer dereference", r"BUG: (?P<what>kernel NULL pointer dereference)"),
    _oops("BUG: unable to handle", r"BUG: (?P<what>unable to handle [\w ]{1,60})"),
    # "Oops: 0002 [#1]", on arm64 "Internal error: Oops: …". A program may be called "Oops: 1".
    _oops("kernel BUG at", r"(?P<what>kernel BUG at \S{1,100}:\d{1,6})!"),
    _oops("general protection fault", r"(?P<what>general protection fault)[,:](?! ip:)"),
    _oops("Oops:", r"(?:^|error: )(?P<what>Oops: [^\[]{1,120}?) ?\[#\d{1,6}\](?!.*\]: segfault)"),
    LineRule(
        needle="blocked for more than",
        pattern=re.compile(r"task (?P<task>.{1,64}?):\d+ blocked for more than (?P<seconds>\d+) s"),
        condition="HungTask",
        component=KERNEL,
        message="a task ({task}) has waited in the kernel for {seconds} s",
    ),
    LineRule(
        needle="emory cgroup out of memory",
        pattern=re.compile(
            r"emory cgroup out of memory: Kill(?:ed)? process \d+ \((?P<task>.{0,64}?)\)"
        ),
        condition="JobOutOfMemory",
        component="host/memory",
        message="a job reached its limit of memory; the kernel killed {task}",
        severity=Severity.INFO,
        action=SuggestedAction.NONE,
    ),
    LineRule(
        needle="Out of memory: Kill",
        pattern=re.compile(r"Out of memory: Kill(?:ed)? process \d+ \((?P<task>.{0,64}?)\)"),
        condition="NodeOutOfMemory",
        component="host/memory",
        message="the node ran out of memory; the kernel killed {task}",
    ),
    LineRule(
        needle="in libnccl",
        pattern=re.compile(r"(?P<task>\S{1,64})\[\d+\]: segfault at .{1,200} in libnccl"),
        condition="NcclCrash",
        component="service/nccl",
        message="{task} crashed inside libnccl",
        severity=Severity.INFO,
    ),
)
