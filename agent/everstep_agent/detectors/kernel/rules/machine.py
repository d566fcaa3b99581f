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
        name="FileHandlesExhausted",
        component=KERNEL,
        meaning="the node has no file handle left (fs.file-max): nobody can open a file",
        source=_OWN_WORDS,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="ClocksourceUnstable",
        component=KERNEL,
        meaning="the kernel distrusts the processors' clock and reads a slower one",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
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


# What x86 calls the exceptions that end in an Oops; those of programs begin with "traps: ".
_TRAPS = (
    r"divide error|invalid opcode|stack segment|stack guard page|alignment check|double fault|int3"
    r"|bounds|overflow|invalid TSS|segment not present|coprocessor [\w ]{1,20}|debug|simd exception"
    r"|control protection"
)
# What the kernel writes behind an Oops. A program may be called "Oops: 0000 [#1]", but in what the
# kernel says of a program other words follow its name.
_COUNT = r"\[#\d{1,6}\](?: (?:PREEMPT|SMP|DEBUG|KASAN|NOPTI|PTI|ARM|THUMB)\b|$)"
_BUGS = (
    r"scheduling while atomic|stack guard page was hit|unable to handle|sleeping function called"
    r"|KASAN: [\w-]{1,40}|KFENCE: [\w -]{1,40}|spinlock (?:bad magic|recursion|already unlocked"
    r"|wrong owner|wrong CPU)|non-zero pgtables_bytes"
    r"|Dentry still in use|workqueue leaked|using smp_processor_id"
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
    _lockup("workqueue lockup", r"BUG: workqueue lockup", "a work queue of the kernel is stuck"),
    _lockup("lockup suspected", r"BUG: spinlock lockup suspected", "a CPU is stuck at a lock"),
    _lockup("self-detected stall", r"self-detected stall on", "a CPU holds up the kernel (RCU)"),
    _lockup("stalls on", r"detected (?:expedited )?stalls on", "a task holds up RCU"),
    _lockup("kthread starved", r"\w{1,24} kthread starved for", "the kernel's RCU task starves"),
    _oops(
        "NULL pointer dereference",
        r"(?:BUG: u|BUG: |U)(?P<what>(?:nable to handle )?kernel NULL pointer dereference)",
    ),
    _oops("nable to handle", r"(?:BUG: u|U)(?P<what>nable to handle (?!userspace)[\w ]{1,60})"),
    _oops("kernel BUG at", r"(?P<what>kernel BUG at \S{1,100}:\d{1,6})!"),
    _oops("general protection fault", r"(?:Oops: )?(?P<what>general protection fault)[,:](?! ip:)"),
    _oops("[#", rf"(?:Oops: )?(?P<what>{_TRAPS}): [0-9a-f]{{4}} {_COUNT}"),
    _oops(
        "Internal error: ", r"Internal error: (?P<what>[^\[:]{1,80}?)(?:: \w{1,16})? ?\[#\d{1,6}\]"
    ),
    _oops("SError", r"(?P<what>SError Interrupt on CPU\d+), code"),
    _oops("Bad mode in", r"(?P<what>Bad mode in \w{1,24}(?: \w{1,16})? handler) detected"),
    _oops("Oops:", rf"(?P<what>Oops: [0-9a-f]{{4,16}}) {_COUNT}"),
    _oops(
        "BUG: Bad ", r"BUG: (?P<what>Bad (?:page state|page map|rss-counter state|page cache))\b"
    ),
    _oops("BUG: ", rf"BUG: (?P<what>{_BUGS})"),
    _oops("list_", r"(?P<what>list_(?:add|del) (?:double add|corruption))"),
    _oops(
        "refcount_t: ",
        r"(?P<what>refcount_t: (?:underflow|saturated|addition on 0|increment on 0"
        r"|decrement hit 0))",
    ),
    _oops("ouble fault", r"(?P<what>PANIC: double fault|traps: PANIC: double fault)"),
    LineRule(
        needle="for more than",
        pattern=re.compile(
            r"task (?P<task>.{1,64}?):\d+ blocked (?:in I/O wait |on .{1,40} )?"
            r"for more than (?P<seconds>\d+) s"
        ),
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
        needle="Out of memory (",
        pattern=re.compile(
            r"Out of memory \(oom_kill_allocating_task\): Kill(?:ed)? process \d+ "
            r"\((?P<task>.{0,64}?)\)"
        ),
        condition="NodeOutOfMemory",
        component="host/memory",
        message="the node ran out of memory; the kernel killed {task}",
    ),
    LineRule(
        needle="file-max limit",
        pattern=re.compile(r"VFS: file-max limit (?P<most>\d+) reached"),
        condition="FileHandlesExhausted",
        component=KERNEL,
        message="the node has no file handle left (fs.file-max {most})",
    ),
    LineRule(
        needle="as unstable because the skew is too large",
        pattern=re.compile(
            r"timekeeping watchdog on CPU\d+: Marking clocksource '(?P<name>[\w-]{1,32})' as"
            r" unstable"
        ),
        condition="ClocksourceUnstable",
        component=KERNEL,
        message="the kernel gave up the clock {name}: reading the time costs more from now on",
        severity=Severity.INFO,
    ),
    LineRule(
        needle="in libnccl",
        pattern=re.compile(r"(?P<task>\S{1,64})\[\d+\]: segfault at .{1,200} in libnccl"),
        condition="NcclCrash",
        component="service/nccl",
        message="{task} crashed inside libnccl",
        severity=Severity.INFO,
        of_program=True,
    ),
)
