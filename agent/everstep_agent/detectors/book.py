"""The book of open findings: judgements go in, what was raised and cleared comes out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from everstep_agent.detectors.conditions import CONDITIONS, Condition
from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement
from everstep_common.findings import Finding, FindingKey, Severity


class Moment(Protocol):
    """A time on the node's clocks."""

    @property
    def boot_id(self) -> str:
        """Which boot the boot clock counts from."""
        ...

    @property
    def boot_ns(self) -> int:
        """Nanoseconds since that boot."""
        ...

    @property
    def wall_ns(self) -> int:
        """Wall clock, for people."""
        ...


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """A finding and when it began."""

    finding: Finding
    since: Moment


@dataclass(frozen=True, slots=True)
class Cleared:
    """A finding that ended, and what shows it."""

    key: FindingKey
    evidence: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What the controller must hear."""

    raised: tuple[OpenFinding, ...] = ()
    cleared: tuple[Cleared, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.raised or self.cleared)


class FindingBook:
    """Debounces judgements and keeps the findings that are open.

    A condition is raised after its number of consecutive faulty polls and cleared after its number
    of consecutive healthy ones (conditions.py). A poll that could not be read counts as neither.
    """

    def __init__(self, open_findings: Iterable[OpenFinding] = ()) -> None:
        self._open = {known.finding.key: known for known in open_findings}
        self._streaks: dict[FindingKey, tuple[bool, int]] = {}

    @property
    def open_findings(self) -> tuple[OpenFinding, ...]:
        """Return what is open, oldest first."""
        return tuple(self._open.values())

    def fatal(self) -> tuple[Finding, ...]:
        """Return the open findings with which the node cannot train."""
        found = (known.finding for known in self._open.values())
        return tuple(finding for finding in found if finding.severity is Severity.FATAL)

    def take(self, judgements: Iterable[Judgement], now: Moment) -> Changes:
        """Enter one poll's judgements."""
        raised: list[OpenFinding] = []
        cleared: list[Cleared] = []
        for judgement in judgements:
            condition = CONDITIONS[judgement.key.condition]
            if isinstance(judgement, Faulty):
                raised += self._faulty(judgement.finding, condition, now)
            elif isinstance(judgement, Healthy):
                cleared += self._healthy(judgement, condition)
        return Changes(tuple(raised), tuple(cleared))

    def _faulty(self, finding: Finding, condition: Condition, now: Moment) -> list[OpenFinding]:
        known = self._open.get(finding.key)
        streak = self._streak(finding.key, faulty=True)
        if known is None:
            if streak < condition.raise_after or now.boot_ns < condition.boot_grace_ns:
                return []
        elif not _worth_telling(known.finding, finding):
            return []
        entry = OpenFinding(finding, known.since if known else now)
        self._open[finding.key] = entry
        return [entry]

    def _healthy(self, judgement: Healthy, condition: Condition) -> list[Cleared]:
        if judgement.key not in self._open:
            self._streaks.pop(judgement.key, None)
            return []
        if self._streak(judgement.key, faulty=False) < condition.clear_after:
            return []
        del self._open[judgement.key], self._streaks[judgement.key]
        return [Cleared(judgement.key, judgement.evidence)]

    def _streak(self, key: FindingKey, *, faulty: bool) -> int:
        was_faulty, length = self._streaks.get(key, (faulty, 0))
        length = length + 1 if was_faulty == faulty else 1
        self._streaks[key] = (faulty, length)
        return length


def _worth_telling(known: Finding, new: Finding) -> bool:
    """Return whether what to do changed; a message with other numbers in it is no news."""
    old = (known.severity, known.suggested_action, known.rule)
    return old != (new.severity, new.suggested_action, new.rule)
