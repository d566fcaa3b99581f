"""Saved log analysis: the findings in a whole log, each listed once, with the lines it is in."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep_agent.detectors.kernel.detector import (
    PREFILTER,
    Interesting,
    KernelDetector,
    XidSettings,
)
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.xid import XidEvent, xid_event
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.gpu_faults.xid_table import driver_branch
from everstep_agent.detectors.kernel.logs.kernel_origin import is_of_kernel
from everstep_agent.detectors.kernel.logs.log_formats import (
    FIELD_NEEDLES,
    SPACE_NEEDLES,
    LogFormats,
    LogLine,
)
from everstep_agent.detectors.kernel.logs.log_records import LogRecords
from everstep_agent.detectors.kernel.logs.log_records import NumberedLine as NumberedLine
from everstep_agent.detectors.kernel.rules.builtin import DAEMONS
from everstep_agent.detectors.kernel.rules.line import KernelLine
from everstep_agent.detectors.kernel.rules.rule import LinePrefilter
from everstep_common.judging.findings import Finding, FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

_WORTH_READING = LinePrefilter((*PREFILTER.needles, *FIELD_NEEDLES, *SPACE_NEEDLES))
# The start of an Xid message whose line a mail or a terminal has broken before the Xid's number.
_BROKEN = re.compile(r"NVRM: Xid(?: \([^)]{0,80}\)?:?)?\s*$")
_SECOND_NS = 10**9
# Programs whose words count as a driver's do: they manage the switches between GPUs, look after
# disks, and serve files.
_DAEMONS = DAEMONS | {"nv-fabricmanager"}
# A log with more different things in it than this is not read to its end by anybody.
_DIFFERENT_MAX = 10_000
_HOSTS_MAX = 10_000


@dataclass(slots=True)
class Places:
    """Lines in which something stands in a log, and their number."""

    line: int
    time: str
    last_line: int = 0
    last_time: str = ""
    count: int = 0

    def add(self, line: int, time: str) -> None:
        """Take one more line."""
        self.count += 1
        self.last_line, self.last_time = line, time


@dataclass(slots=True)
class ToldFinding:
    """A finding, where its lines stand, and the line in which the kernel says that it is over.

    ``host``: whose log it is, where the lines say so.
    """

    finding: Finding
    places: Places
    host: str
    ended_line: int | None = None


@dataclass(slots=True)
class ToldXid:
    """An Xid of one GPU, whether or not it is a finding."""

    code: int
    gpu: str
    # The name of the Xid in NVIDIA's table; empty for a code that is not in it.
    name: str
    places: Places
    host: str
    # The Xid that it follows, where the driver says so: then it is a victim, and no fault itself.
    cause: int | None = None


@dataclass(slots=True)
class _Moment:
    boot_id: str = "log"
    boot_ns: int = 0
    wall_ns: int = 0


@dataclass(slots=True)
class _Node:
    """What was read of one host."""

    detector: KernelDetector
    now: _Moment = field(default_factory=_Moment)
    fatal_xids: dict[FindingKey, Finding] = field(default_factory=dict)


@dataclass(slots=True)
class LogReading:
    """Analysis of a log that comes piece by piece."""

    tables: FaultTables
    lines: int = 0
    # How many lines were read as the kernel's own: by their form, or because a rule knows them.
    kernel_lines: int = 0
    # How many lines were of other programs that only quote the kernel.
    foreign: int = 0
    # How many findings were left out because there were too many different ones already.
    dropped: int = 0
    findings: dict[tuple[str, FindingKey, object], ToldFinding] = field(default_factory=dict)
    xids: dict[tuple[str, str, int], ToldXid] = field(default_factory=dict)
    _formats: LogFormats = field(default_factory=LogFormats)
    _records: LogRecords = field(default_factory=LogRecords)
    _nodes: dict[str, _Node] = field(default_factory=dict)

    @property
    def driver(self) -> str:
        """Return the version of the NVIDIA driver, if the log says it."""
        return next(
            (one.detector.driver for one in self._nodes.values() if one.detector.driver), ""
        )

    @property
    def hosts(self) -> frozenset[str]:
        """Return whose lines were judged; the empty name where a line does not say."""
        return frozenset(self._nodes)

    def read_lines(self, lines: Sequence[NumberedLine]) -> None:
        """Read the next lines; the same number again goes on with the line before."""
        if lines:
            self.lines = lines[-1].number
        self.kernel_lines += len({line.number for line in lines if is_of_kernel(line.text)})
        texts = [line.text for line in lines]
        worth = _WORTH_READING.select(texts)
        if worth:
            self._records.note_records("\n".join(texts[place] for place in worth))
        whole: Iterable[NumberedLine] = (_unbroken(lines, place) for place in worth)
        if self._records.seen:
            whole = self._records.ordered(lines, frozenset(worth))
        for line in whole:
            self._read(line)

    def finish(self) -> None:
        """Say that no lines come any more."""
        for line in self._records.rest():
            self._read(line)

    def worst(self) -> Severity | None:
        """Return the worst severity of what the log does not call over; None: nothing found."""
        order = list(Severity)
        found = (told.finding for told in self.findings.values() if told.ended_line is None)
        return max((one.severity for one in found), key=order.index, default=None)

    def _read(self, raw: NumberedLine) -> None:
        line = self._formats.read(raw.text)
        if not PREFILTER.passes(line.text):
            return
        has_its_form = is_of_kernel(raw.text)
        if line.program and line.program not in _DAEMONS:
            self.foreign += 1
            self.kernel_lines -= has_its_form
            return
        known = self._judge(raw.number, replace(line, host=self._whose(line.host)))
        self.kernel_lines += known and not has_its_form

    def _judge(self, number: int, line: LogLine) -> bool:
        """Keep what a line says; return whether it says anything."""
        node = self._node(line.host)
        boot_ns = None if line.boot_s is None else int(line.boot_s * _SECOND_NS)
        if boot_ns is not None:
            node.now.boot_ns = node.now.wall_ns = boot_ns
        kernel_line = KernelLine(line.text, line.injected, boot_ns=boot_ns)
        event = xid_event(line.text)
        if event is not None:
            self._count(event, number, line)
        # An Xid 154 refines the finding of the Xid before it; all others are judged by themselves.
        known: Mapping[FindingKey, Finding] = {}
        if event is not None and event.code == 154:
            known = node.fatal_xids
        node.detector.open_finding = known.get
        judgements = node.detector.judge([Interesting(kernel_line, event)], DriverTruth(), node.now)
        for judgement in judgements:
            self._keep(judgement, number, line)
        return event is not None or bool(judgements)

    def _whose(self, host: str) -> str:
        """Return the host of a line: a report of one node names it in a part of its lines only."""
        if not host and len(self._nodes) == 1:
            return next(iter(self._nodes))
        if host and list(self._nodes) == [""]:
            self._nodes = {host: self._nodes[""]}
            self.findings = {(host, *key[1:]): told for key, told in self.findings.items()}
            self.xids = {(host, *key[1:]): told for key, told in self.xids.items()}
            for finding in self.findings.values():
                finding.host = host
            for xid in self.xids.values():
                xid.host = host
        return host

    def _node(self, host: str) -> _Node:
        if host not in self._nodes and len(self._nodes) >= _HOSTS_MAX:
            host = ""
        if host not in self._nodes:
            self._nodes[host] = _Node(KernelDetector(XidSettings(self.tables)))
        return self._nodes[host]

    def _count(self, event: XidEvent, number: int, line: LogLine) -> None:
        key = (line.host, event.pci, event.code)
        if key not in self.xids and len(self.xids) >= _DIFFERENT_MAX:
            return
        row = self.tables.xids.row(event.code, driver_branch(self._node(line.host).detector.driver))
        fresh = ToldXid(
            event.code,
            event.pci,
            row.name if row else "",
            Places(number, line.time),
            line.host,
            event.cause,
        )
        self.xids.setdefault(key, fresh).places.add(number, line.time)

    def _keep(self, judgement: Judgement, number: int, line: LogLine) -> None:
        if isinstance(judgement, Healthy):
            for (host, key, _), told in self.findings.items():
                if (host, key) == (line.host, judgement.key) and told.ended_line is None:
                    told.ended_line = number
        elif isinstance(judgement, Faulty):
            self._keep_finding(judgement.finding, number, line)

    def _keep_finding(self, finding: Finding, number: int, line: LogLine) -> None:
        event = xid_event(finding.evidence)
        if finding.condition == "XidFatal":
            self._node(line.host).fatal_xids[finding.key] = finding
        key = (line.host, finding.key, event.code if event else finding.rule)
        told = self.findings.get(key)
        if told is None:
            if len(self.findings) >= _DIFFERENT_MAX:
                self.dropped += 1
                return
            told = self.findings[key] = ToldFinding(finding, Places(number, line.time), line.host)
        if finding.rule == told.finding.rule or finding.evidence == line.text[:300]:
            told.places.add(number, line.time)
            told.ended_line = None
        if finding.rule != told.finding.rule:
            # The Xid 154 that followed says what the driver wants, which outranks the table.
            told.finding = finding


def _unbroken(lines: Sequence[NumberedLine], place: int) -> NumberedLine:
    line = lines[place]
    if place + 1 == len(lines) or not _BROKEN.search(line.text):
        return line
    rest = lines[place + 1].text.lstrip("> \t")
    return NumberedLine(line.number, f"{line.text.rstrip()} {rest}")
