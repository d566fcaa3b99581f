"""Finding book: takes judgements, and says which findings they raised and cleared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity
from everstep_common.judging.flapping import Flapping, is_news
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.judging.moment import Moment


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A moment of the same boot before one that is known."""

    boot_id: str
    boot_ns: int
    wall_ns: int

    @classmethod
    def of(cls, boot_ns: int, now: Moment) -> "_Earlier":
        passed_ns = max(0, now.boot_ns - boot_ns)
        return cls(now.boot_id, now.boot_ns - passed_ns, now.wall_ns - passed_ns)


@dataclass(frozen=True, slots=True)
class BookEntry:
    """An open finding, when it began, and when it was seen last (None: when it began)."""

    finding: Finding
    since: Moment
    last: Moment | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """A finding that ended, and what shows it."""

    key: FindingKey
    evidence: str


@dataclass(frozen=True, slots=True)
class BookChanges:
    """News after a poll, and whether an event that is open was seen again."""

    raised: tuple[BookEntry, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    again: bool = False

    def __bool__(self) -> bool:
        return bool(self.raised or self.cleared)


class FindingBook:
    """Book of open findings, which debounces judgements.

    A condition is raised after its number of consecutive faulty polls and cleared after its number
    of consecutive healthy ones. A poll that could not be read counts as neither. ``conditions`` are
    all that may be judged, by name; ``modes`` are the operator's, where they differ from what a
    condition was shipped with.
    """

    def __init__(
        self,
        conditions: Mapping[str, Condition],
        open_findings: Iterable[BookEntry] = (),
        modes: Mapping[str, Mode] | None = None,
    ) -> None:
        self._conditions = conditions
        self._open = {known.finding.key: known for known in open_findings}
        self._modes = modes or {}
        self._streaks: dict[FindingKey, tuple[bool, int]] = {}
        self._flapping: dict[FindingKey, Flapping] = {}

    @property
    def open_findings(self) -> tuple[BookEntry, ...]:
        """Return what is open, oldest first."""
        return tuple(self._open.values())

    @property
    def open_keys(self) -> tuple[FindingKey, ...]:
        """Return what is open, by its keys."""
        return tuple(self._open)

    def open_finding(self, key: FindingKey) -> Finding | None:
        """Return what is open under a key."""
        known = self._open.get(key)
        return known.finding if known else None

    @property
    def idle(self) -> bool:
        """Return whether nothing is open, and nothing on its way to be."""
        return not self._open and not self._streaks

    def fatal_findings(self) -> tuple[Finding, ...]:
        """Return the open findings with which the node cannot train."""
        found = (known.finding for known in self._open.values() if not known.finding.key.job)
        return tuple(finding for finding in found if finding.severity is Severity.FATAL)

    def enter_judgements(self, judgements: Iterable[Judgement], now: Moment) -> BookChanges:
        """Enter one poll's judgements; return what changed."""
        raised = self._tell_held(now)
        cleared: list[Cleared] = []
        again = False
        for judgement in judgements:
            if isinstance(judgement, Faulty):
                condition = self._conditions[judgement.key.condition]
                again = again or (condition.quiet_ns > 0 and judgement.key in self._open)
                raised += self._faulty(judgement, condition, now)
            # Checked first: a healthy node gives hundreds of these a second, with nothing open.
            elif isinstance(judgement, Healthy) and (self._open or self._streaks):
                cleared += self._healthy(judgement, now)
        return BookChanges(tuple(raised), tuple(cleared), again)

    def judge_quiet_events(self, now: Moment) -> list[Judgement]:
        """Return which events were not seen again for as long as their condition asks."""
        quiet = [
            Healthy(key, f"not seen again for {quiet_ns / 60e9:g} min")
            for key, known in self._open.items()
            if (quiet_ns := self._conditions[key.condition].quiet_ns)
            and _since(known.last or known.since, now) >= quiet_ns
        ]
        well = "it came and went, and has been well for a minute"
        kept = [key for key in self._open if self._is_over(key, now)]
        told = {one.key for one in quiet}
        return [*quiet, *(Healthy(key, well) for key in kept if key not in told)]

    def _is_over(self, key: FindingKey, now: Moment) -> bool:
        """Return whether a finding that was kept open because it flaps is over."""
        known = self._flapping.get(key)
        return known is not None and known.well_since_ns > 0 and known.over_at_ns <= now.boot_ns

    def _faulty(self, told: Faulty, condition: Condition, now: Moment) -> list[BookEntry]:
        finding = told.finding
        mode = self._modes.get(condition.name, condition.mode)
        if finding.mode is not mode:
            finding = replace(finding, mode=mode)
        known = self._open.get(finding.key)
        streak = self._streak(finding.key, faulty=True)
        if known is not None:
            self._note_bad_again(finding.key, now)
        if known is None:
            if streak < condition.raise_after or now.boot_ns < condition.boot_grace_ns:
                return []
        elif not self._is_told(known.finding, finding, now):
            self._open[finding.key] = BookEntry(known.finding, known.since, now)
            return []
        if known is None:
            self._flapping.setdefault(finding.key, Flapping()).note_raised(now.boot_ns)
        began = now if told.since_boot_ns is None else _Earlier.of(told.since_boot_ns, now)
        entry = BookEntry(finding, known.since if known else began, now)
        self._open[finding.key] = entry
        return [entry]

    def _is_told(self, known: Finding, found: Finding, now: Moment) -> bool:
        """Return whether a change of an open finding is reported now."""
        flapping = self._flapping.setdefault(known.key, Flapping())
        if not is_news(known, found):
            flapping.drop_held()
            return False
        return not flapping.holds_back(known, found, now.boot_ns)

    def _tell_held(self, now: Moment) -> list[BookEntry]:
        """Return the findings whose changes were held back for long enough."""
        told = []
        for key, flapping in self._flapping.items():
            known, due = self._open.get(key), flapping.take_due(now.boot_ns)
            if known is not None and due is not None:
                self._open[key] = BookEntry(due, known.since, known.last)
                told.append(self._open[key])
        return told

    def _note_bad_again(self, key: FindingKey, now: Moment) -> None:
        flapping = self._flapping.get(key)
        if flapping is not None and flapping.well_since_ns:
            flapping.note_raised(now.boot_ns)

    def _healthy(self, judgement: Healthy, now: Moment) -> list[Cleared]:
        key = judgement.key
        if key not in self._open:
            self._streaks.pop(key, None)
            return []
        if self._streak(key, faulty=False) < self._conditions[key.condition].clear_after:
            return []
        flapping = self._flapping.get(key)
        if flapping is not None and flapping.keeps_open(now.boot_ns):
            return []
        if flapping is not None and not (flapping.raised_ns and flapping.is_recent(now.boot_ns)):
            del self._flapping[key]
        del self._open[key], self._streaks[key]
        return [Cleared(key, judgement.evidence)]

    def _streak(self, key: FindingKey, *, faulty: bool) -> int:
        was_faulty, length = self._streaks.get(key, (faulty, 0))
        length = length + 1 if was_faulty == faulty else 1
        self._streaks[key] = (faulty, length)
        return length


def _since(then: Moment, now: Moment) -> int:
    """Return the nanoseconds that passed, in this boot, since a moment."""
    return now.boot_ns - then.boot_ns if then.boot_id == now.boot_id else now.boot_ns
