"""Health report: the open findings of a node, what could not be read, and one status for all."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from everstep_agent.health.groups import groups_of
from everstep_agent.sources.source import ProbeResult
from everstep_common.codec import from_json, json_text
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity

# Version of the report's JSON form; new fields may be added without raising it.
REPORT_VERSION = 1
# Conditions of the agent's own probes: the node's health is then unknown, neither good nor bad.
_CANNOT_TELL = ("ProbeFailed", "ProbeHang")


class Status(IntEnum):
    """The exit code of a check, as the monitoring plugins of Nagios count."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Held:
    """A finding that is open, and since when (nanoseconds of Unix time)."""

    finding: Finding
    since_ns: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that told nothing, and why."""

    probe: str
    why: str


@dataclass(frozen=True, slots=True)
class BudgetAnswer:
    """The controller's word on failed prolog scripts, and when it came (Unix time in ns).

    A prolog that fails drains its node as an isolation does, so the fleet's budget holds for it.
    """

    # Why the node may not leave; empty while it may.
    exceeded: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """One answer. ``unread`` could not be read just now, ``blind`` never can with these rights.

    ``asked`` is "agent" for the findings of the agent that runs here, "probes" for a look of one's
    own. ``groups`` are those that were asked for; none means all. ``not_judged`` are conditions
    that have to be watched for longer, and ``answered`` says how many devices did ("8 of 8 GPUs").
    """

    node: str
    asked: str
    groups: tuple[str, ...] = ()
    findings: tuple[Held, ...] = ()
    unread: tuple[Unread, ...] = ()
    blind: tuple[Unread, ...] = ()
    notes: tuple[str, ...] = ()
    not_judged: tuple[Unread, ...] = ()
    answered: tuple[str, ...] = ()
    # Versions of the agent and of `check` may differ: this is the name in their JSON.
    fleet_word: BudgetAnswer | None = None

    @property
    def failing(self) -> tuple[Held, ...]:
        """Return the findings for which a node must not get a job: fatal, and without a doubt."""
        return tuple(held for held in self.findings if _fails(held.finding))

    @property
    def kept_by_fleet(self) -> str:
        """Return why a node with such findings is to stay; empty if it need not."""
        answer = self.fleet_word
        if answer is None or answer.exceeded:
            return answer.exceeded if answer else ""
        newest_ns = max((held.since_ns for held in self.failing), default=0)
        return "" if newest_ns < answer.at_ns else "the controller has not said yet whether it may"

    @property
    def status(self) -> Status:
        """Return the worst of what is known; what could not be read is worse than degraded.

        A condition that is only observed (its mode) never makes a node critical.
        """
        worst = max((_status_of(held.finding) for held in self.findings), default=Status.OK)
        if worst is Status.CRITICAL:
            return worst
        cannot_tell = any(held.finding.condition in _CANNOT_TELL for held in self.findings)
        return Status.UNKNOWN if cannot_tell or self.unread else worst


def prolog_code(report: HealthReport, strict: bool) -> int:
    """Return with what a prolog ends: 0, unless a finding leaves no doubt and the fleet allows it.

    A prolog that fails drains its node. One log that was moved must not drain a cluster, so what
    could not be read fails only where somebody asked for that (``strict``).
    """
    if report.failing and not report.kept_by_fleet:
        return int(Status.CRITICAL)
    cannot_tell = report.unread or report.blind or report.status is Status.UNKNOWN
    return int(Status.UNKNOWN) if strict and cannot_tell else 0


def _fails(finding: Finding) -> bool:
    return finding.severity is Severity.FATAL and finding.mode is Mode.ENFORCE


def _status_of(finding: Finding) -> Status:
    if finding.severity is Severity.INFO:
        return Status.OK
    fatal = finding.severity is Severity.FATAL and finding.mode is not Mode.OBSERVE
    return Status.CRITICAL if fatal else Status.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Contents of a report: the open findings, and the newest looks."""

    node: str
    asked: str
    findings: Sequence[BookEntry]
    looks: Sequence[ProbeResult]
    # The group of each source, by its name.
    probes: Mapping[str, str]
    notes: tuple[str, ...] = ()
    # Why a part of what a source reads cannot be read, by the source's name.
    blind: Mapping[str, str] = field(default_factory=dict)
    not_judged: Sequence[Unread] = ()
    answered: tuple[str, ...] = ()
    budget_answer: BudgetAnswer | None = None


def report_on(known: Known, groups: Iterable[str]) -> HealthReport:
    """Return the part of what is known that concerns these groups; none means all."""
    wanted = tuple(groups)
    # A source that lacks a right to read says nothing bad of the node: it is shown as blind.
    blind = {FindingKey(f"probe/{one.probe}", "ProbeFailed") for one in known.looks if one.denied}
    held = sorted(
        (
            Held(one.finding, one.since.wall_ns)
            for one in known.findings
            # What is about a job says nothing of the node, and names paths that are its user's
            # affair: everybody may ask for this report.
            if not one.finding.key.job
            and one.finding.key not in blind
            and (not wanted or groups_of(one.finding.key, known.probes) & set(wanted))
        ),
        key=lambda one: (-_status_of(one.finding), one.since_ns),
    )
    looks = [one for one in known.looks if not wanted or known.probes.get(one.probe) in wanted]
    return HealthReport(
        node=known.node,
        asked=known.asked,
        groups=wanted,
        findings=tuple(held),
        unread=_by_name(Unread(one.probe, one.trouble) for one in looks if one.trouble),
        blind=_by_name(
            (
                *(Unread(one.probe, one.denied) for one in looks if one.denied),
                *(
                    Unread(probe, why)
                    for probe, why in known.blind.items()
                    if why and (not wanted or known.probes.get(probe) in wanted)
                ),
            )
        ),
        notes=known.notes,
        not_judged=_by_name(known.not_judged),
        answered=known.answered,
        fleet_word=known.budget_answer,
    )


def _by_name(entries: Iterable[Unread]) -> tuple[Unread, ...]:
    """Return the same order every time, so that answers can be compared."""
    return tuple(sorted(entries, key=lambda one: (one.probe, one.why)))


def encode(report: HealthReport) -> str:
    """Return a report as one line for the socket of the agent."""
    return json_text(report)


def decode(line: str | bytes) -> HealthReport:
    """Return what ``encode`` wrote. Raises ValueError."""
    try:
        return from_json(HealthReport, json.loads(line), "report")
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
