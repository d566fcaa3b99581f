"""Crash record detector: whether the previous boot crashed, by what the firmware kept (pstore)."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.detectors.kernel.gpu_faults.xid import xid_event
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.line import KernelLine
from everstep_agent.detectors.kernel.rules.rule import EVIDENCE_CHARS
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

# The longest time from a crash to the next start of the kernel: firmware tests and trains the
# memory of a node with 2 TB for minutes.
_BETWEEN_BOOTS_NS = HOUR_NS
_KEY = FindingKey("host/kernel", "PreviousBootCrashed")
# Conditions with which a kernel ends; an Oops, a lockup or a machine check before a panic is its
# cause.
_ENDINGS = (
    "KernelPanic",
    "KernelOops",
    "KernelLockup",
    "MachineCheckFatal",
    "MachineCheckUncorrected",
)

CONDITIONS = (
    Condition(
        name=_KEY.condition,
        component=_KEY.component,
        meaning="the boot before this one ended in a crash, of which pstore kept the last lines",
        source=f"a record that was written less than {_BETWEEN_BOOTS_NS // HOUR_NS} h before this "
        "boot, or in it",
        clears_when="the record was removed, or the node was rebooted without another crash",
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """One file of /sys/fs/pstore, or of the folder to which systemd moves them."""

    path: str
    written_wall_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class PstoreReading:
    """The crash records of this node. ``denied`` says which of them may not be read."""

    records: tuple[CrashRecord, ...] = ()
    denied: str = ""


def judge_pstore(reading: PstoreReading, now: Moment) -> Judgement:
    """Judge whether the boot before this one crashed."""
    boot_began_ns = now.wall_ns - now.boot_ns
    recent = [
        record
        for record in reading.records
        if record.written_wall_ns >= boot_began_ns - _BETWEEN_BOOTS_NS
    ]
    if recent:
        return Faulty(_crash(recent))
    if reading.denied:
        return Unknown(_KEY, reading.denied)
    return Healthy(_KEY, "no record of a crash right before this boot")


def _crash(records: list[CrashRecord]) -> Finding:
    lines = [KernelLine(line) for record in records for line in record.text.splitlines()]
    ending = _ending(lines)
    words = f": {ending.message}" if ending else f" ({records[0].path})"
    return Finding(
        component=_KEY.component,
        condition=_KEY.condition,
        severity=Severity.DEGRADED,
        message=f"the boot before this one ended in a crash{words}{_xids(lines)}",
        evidence=(ending.evidence if ending else records[0].path)[:EVIDENCE_CHARS],
        suggested_action=SuggestedAction.WATCH,
        rule="pstore record",
    )


def _ending(lines: Iterable[KernelLine]) -> Finding | None:
    judged = (RULES.judge(line) for line in lines)
    found = [one.finding for one in judged if isinstance(one, Faulty)]
    endings = [finding for finding in found if finding.condition in _ENDINGS]
    return min(endings, key=lambda finding: _ENDINGS.index(finding.condition), default=None)


def _xids(lines: Iterable[KernelLine]) -> str:
    events = [event for line in lines if (event := xid_event(line.text))]
    told = dict.fromkeys(f"{event.code} of GPU {event.pci}" for event in events)
    return f"; Xids before it: {', '.join(told)}" if told else ""
