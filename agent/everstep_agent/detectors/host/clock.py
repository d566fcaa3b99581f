"""Clock detector: whether the node's clock is kept, how far off it is, and how slowly read."""

from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode, Severity
from everstep_common.judging.judgement import Judgement

# The kernel's fall-backs when the CPU's own counter is not to be trusted: read through a bus, at a
# microsecond and more a call. Clocks of hypervisors and of ARM are not among them.
_SLOW_SOURCES = ("hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies")
_LOOKS = 30

CONDITIONS = (
    Condition(
        name="ClockUnsynchronized",
        component="host/clock",
        meaning=f"the kernel reports an unsynchronized clock (STA_UNSYNC) in {_LOOKS} polls, five "
        "minutes",
        source="AWS's node monitoring agent takes STA_UNSYNC; node-exporter's alert "
        "NodeClockNotSynchronising waits five minutes",
        clears_when="the kernel reports a synchronized clock in two polls",
        raise_after=_LOOKS,
        clear_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
    ),
    Condition(
        name="ClockOffset",
        component="host/clock",
        meaning=f"the kernel is correcting an offset above {_D.clock_offset_max_s * 1000:g} ms in "
        f"{_LOOKS} polls, five minutes",
        source="node-exporter's alert NodeClockSkewDetected: 50 ms",
        clears_when="the offset is below the limit in two polls",
        raise_after=_LOOKS,
        clear_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="ClockSourceSlow",
        component="host/clock",
        meaning=f"the kernel reads the time from one of {', '.join(_SLOW_SOURCES)}",
        source="Meta's gcm checks the clock source: the kernel left the CPU's counter because it "
        "found it unstable, and each reading now costs a microsecond and more",
        clears_when="the kernel uses another source in two polls",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """The kernel's word on its clock. ``synchronized`` is None where it may not be asked."""

    synchronized: bool | None
    offset_s: float = 0.0
    max_error_s: float = 0.0
    source: str = ""


def judge_clock(clock: ClockReading, limits: HostLimits = _D) -> list[Judgement]:
    """Judge one reading; what could not be read is not judged."""
    found = []
    if clock.synchronized is not None:
        found += [_judge_kept(clock), _judge_offset(clock, limits.clock_offset_max_s)]
    if clock.source:
        found.append(_judge_source(clock.source))
    return found


def _judge_kept(clock: ClockReading) -> Judgement:
    fault = Fault(
        message="nobody keeps the node's clock: chrony, ntpd or timesyncd is not in step",
        rule="STA_UNSYNC",
        # Nothing that trains reads the wall clock, and many virtual machines leave it to the host.
        severity=Severity.INFO,
    )
    lost = not clock.synchronized
    evidence = f"{'out of' if lost else 'in'} step, largest error {clock.max_error_s:.3f} s"
    return judged("host/clock", "ClockUnsynchronized", evidence, fault if lost else None)


def _judge_offset(clock: ClockReading, limit_s: float) -> Judgement:
    fault = Fault(message="the node's clock is off", rule=f"offset above {limit_s:g} s")
    off = abs(clock.offset_s) > limit_s
    evidence = f"offset {clock.offset_s:.6f} s"
    return judged("host/clock", "ClockOffset", evidence, fault if off else None)


def _judge_source(source: str) -> Judgement:
    fault = Fault(
        message="the CPU's own counter is not trusted, and reading the time is slow",
        rule="a clock source that is read through a bus",
    )
    slow = source in _SLOW_SOURCES
    return judged(
        "host/clock", "ClockSourceSlow", f"clock source {source}", fault if slow else None
    )
