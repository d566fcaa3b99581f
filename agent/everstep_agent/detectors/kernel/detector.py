"""Kernel log detector: what the kernel said about the node, from its lines."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep_agent.detectors.kernel.gpu_faults import sxid
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.gpu_verdict import XidOverride
from everstep_agent.detectors.kernel.gpu_faults.xid import NEEDLE as XID_NEEDLE
from everstep_agent.detectors.kernel.gpu_faults.xid import XidEvent, xid_event
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth, XidDetector
from everstep_agent.detectors.kernel.gpu_faults.xid_history import XidHistory
from everstep_agent.detectors.kernel.gpu_faults.xid_table import driver_branch
from everstep_agent.detectors.kernel.rules import pci_ports
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.component_limit import ComponentLimit
from everstep_agent.detectors.kernel.rules.line import KernelLine, began_ns
from everstep_agent.detectors.kernel.rules.repeats import Repeats
from everstep_agent.detectors.kernel.rules.rule import LinePrefilter, LineRules, more_severe
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.judgement import Faulty, Judgement
from everstep_common.judging.moment import Moment


def prefilter_for(rules: LineRules) -> LinePrefilter:
    """Return the filter for the lines that a detector with these rules may know."""
    return LinePrefilter((XID_NEEDLE, sxid.NEEDLE, *rules.needles, *pci_ports.NEEDLES))


PREFILTER = prefilter_for(RULES)
# Xids of which only the last one counts: 154 (what the driver wants done about a GPU), 162 and 163
# (its power smoothing went on, went off).
_TOGGLES = frozenset({154, 162, 163})
# KERN_WARNING, include/linux/kern_levels.h
_WARNING = 4
# The first of the lines into which the driver breaks "The NVIDIA GPU 0000:3b:00.0 (PCI ID: …)
# installed in this system has fallen off the bus and is not responding to commands."
_NAMED_GPU_NEEDLE = "NVRM: The NVIDIA GPU"
_FALLEN_NEEDLE = "fallen off the bus"
# "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15  …", and of the open modules: "NVRM:
# loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  …"
_DRIVER_VERSION = re.compile(
    r"NVRM: loading NVIDIA UNIX .{0,60}? (?P<version>\d{3,4}\.\d[\d.]{0,12})"
)


def worth_showing(lines: Sequence[KernelLine], rules: LineRules = RULES) -> list[KernelLine]:
    """Return the lines that an operator should see: warnings or worse, and those that we know."""
    prefilter = PREFILTER if rules is RULES else prefilter_for(rules)
    selected = set(prefilter.select([line.text for line in lines]))
    return [
        line
        for place, line in enumerate(lines)
        if line.level is None
        or line.level <= _WARNING
        or (place in selected and _is_known(line, rules))
    ]


def _is_known(line: KernelLine, rules: LineRules) -> bool:
    known = (xid_event(line.text), sxid.judge_sxid(line, {}), rules.judge(line))
    return any(answer is not None for answer in known)


@dataclass(frozen=True, slots=True)
class XidSettings:
    """Inputs of the judgement: tables, the operator's overrides, a history, rules over lines."""

    tables: FaultTables = field(default_factory=FaultTables)
    overrides: Mapping[int, XidOverride] = field(default_factory=dict)
    history: XidHistory = field(default_factory=XidHistory)
    rules: LineRules = RULES


@dataclass(frozen=True, slots=True)
class Interesting:
    """A line that the prefilter let through, with its Xid if it has one."""

    line: KernelLine
    xid: XidEvent | None


class KernelDetector:
    """Detector over kernel lines, in the order of the log; counts Xids of programs."""

    def __init__(self, settings: XidSettings) -> None:
        self._tables = settings.tables
        self._rules = settings.rules
        self._prefilter = PREFILTER if settings.rules is RULES else prefilter_for(settings.rules)
        self._xids = XidDetector(settings.tables, settings.overrides, settings.history)
        self._xids.open_finding = self._known
        # Returns the finding that is open under a key; wired to the agent's book of open findings.
        self.open_finding: Callable[[FindingKey], Finding | None] = lambda _: None
        self._said: dict[FindingKey, Finding | None] = {}
        self._limit = ComponentLimit()
        self._named_gpu = ""
        self._repeats = Repeats()
        self.ports = pci_ports.PciPorts()
        self.driver = ""
        self.xids: Counter[int] = Counter()

    def prefilter(self, lines: Sequence[KernelLine]) -> list[Interesting]:
        """Return the lines that may say something; the others of a flood cost next to nothing."""
        found = []
        for place in self._prefilter.select([line.text for line in lines]):
            line = lines[place]
            event = xid_event(line.text)
            if event is not None:
                self.xids[event.code] += 1
            found.append(Interesting(line, event))
        return found

    def judge(
        self, found: Sequence[Interesting], truth: DriverTruth, now: Moment
    ) -> list[Judgement]:
        """Return what lines say. ``truth`` was read after they came; its branch may be unknown."""
        self._said.clear()
        self._limit.forget_ended(self.open_finding)
        latest: dict[FindingKey, Judgement] = {}
        for one in _without_repeats(found):
            for told in self._judge_line(one, truth, now):
                judgement = _dated(self._limit.bounded(told), one.line, now)
                self._said[judgement.key] = _finding(judgement)
                # A flood repeats a judgement thousands of times: each key keeps its last, in order.
                latest.pop(judgement.key, None)
                latest[judgement.key] = judgement
        return list(latest.values())

    def _judge_line(self, one: Interesting, truth: DriverTruth, now: Moment) -> Sequence[Judgement]:
        line, text = one.line, one.line.text
        if one.xid is not None:
            if truth.branch is None:
                truth = replace(truth, branch=driver_branch(self.driver))
            return self._xids.judge(one.xid, line, truth, now)
        judgement, counts = self._judge_by_rules(line)
        if judgement is None and XID_NEEDLE in text:
            judgement = self._judge_driver_line(line)
        if not isinstance(judgement, Faulty):
            return [judgement] if judgement else []
        together = self._repeated(judgement.finding, line, now) if counts else None
        known = Faulty(more_severe(judgement.finding, self._known(judgement.key)))
        return [known, Faulty(together)] if together else [known]

    def _judge_by_rules(self, line: KernelLine) -> tuple[Judgement | None, bool]:
        """Return what a line says, and whether it means more when it comes again."""
        if sxid.NEEDLE in line.text:
            return sxid.judge_sxid(line, self._tables.sxids), True
        answer = self._rules.answer(line)
        if answer is None:
            self.ports.note_line(line.text)
            return None, False
        rule, judgement = answer
        told = self.ports.at_device(judgement) if rule.address_is_port else judgement
        return told, not rule.user_forgeable

    def _repeated(self, finding: Finding, line: KernelLine, now: Moment) -> Finding | None:
        at_ns = now.boot_ns if line.boot_ns is None else line.boot_ns
        return self._repeats.count(finding, at_ns, since_boot=line.boot_ns is not None)

    def _judge_driver_line(self, line: KernelLine) -> Judgement | None:
        if version := _DRIVER_VERSION.search(line.text):
            self.driver = version["version"]
        if _NAMED_GPU_NEEDLE in line.text:
            self._named_gpu = line.text
        elif _FALLEN_NEEDLE in line.text and self._named_gpu:
            whole = KernelLine(f"{self._named_gpu} {line.text}", line.injected)
            self._named_gpu = ""
            return self._rules.judge(whole)
        return None

    def _known(self, key: FindingKey) -> Finding | None:
        return self._said[key] if key in self._said else self.open_finding(key)


def _without_repeats(found: Sequence[Interesting]) -> Iterator[Interesting]:
    """Yield what is to be judged: a driver in trouble logs the same Xid thousands of times."""
    seen = set()
    for one in found:
        if one.xid is not None and one.xid.code not in _TOGGLES:
            if one.xid.essence in seen:
                continue
            seen.add(one.xid.essence)
        yield one


def _dated(judgement: Judgement, line: KernelLine, now: Moment) -> Judgement:
    if not isinstance(judgement, Faulty):
        return judgement
    return replace(judgement, since_boot_ns=began_ns(line, now.boot_ns))


def _finding(judgement: Judgement) -> Finding | None:
    return judgement.finding if isinstance(judgement, Faulty) else None


@dataclass(frozen=True, slots=True)
class _NoTime:
    """A moment for lines that say nothing about their time."""

    boot_id: str = ""
    boot_ns: int = 0
    wall_ns: int = 0


_NO_TIME = _NoTime()


def judge_kernel(
    lines: Sequence[KernelLine],
    settings: XidSettings | None = None,
    now: Moment = _NO_TIME,
) -> list[Judgement]:
    """Return what some lines say on their own, without a driver to ask."""
    detector = KernelDetector(settings or XidSettings())
    return detector.judge(detector.prefilter(lines), DriverTruth(), now)
