"""Finding rows: what agents find, journaled; what comes and goes again and again, a few times only.

An agent damps that itself. What one of an older version tells ten times a second must not fill the
journal either. What gets worse never waits; the rest is journaled when it has been true for a
minute. Until then only memory has it: after a crash the agent's Hello tells what is open.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.flapping import QUIET_NS, ChangeDamper, is_news, is_worse
from everstep_common.reports import FindingCleared, FindingRaised
from everstep_controller.core.events import FindingSettled, Reported

FindingEvent = Reported[FindingRaised] | Reported[FindingCleared]


@dataclass(slots=True)
class _Told:
    """One condition of a component: its row in the journal, and what is newer."""

    # None: it is well.
    finding: Finding | None = None
    changes: ChangeDamper = field(default_factory=ChangeDamper)
    held: FindingEvent | None = None


class FindingRows:
    """Collector of findings that flap; of each the newest word is held until it is steady."""

    def __init__(self) -> None:
        self._told: dict[str, dict[FindingKey, _Told]] = {}
        # Rows that the journal had no room for.
        self._owed: dict[tuple[str, FindingKey], FindingSettled] = {}
        self._pruned_ns = 0

    def hold(self, event: FindingEvent, now_ns: int) -> bool:
        """Hold a record that flaps; return False for one that is to be journaled now."""
        node, key = event.origin.node, _key(event)
        told = self._told.setdefault(node, {}).setdefault(key, _Told())
        found, before = _finding(event), told.held
        told.held = None
        if told.changes.is_busy(now_ns) and not is_news(told.finding, found):
            told.changes.held_since_ns = 0
            return True
        same = before is not None and not is_news(_finding(before), found)
        worse = is_worse(told.finding, found)
        if told.changes.lets_pass(now_ns, worse=worse, same_as_held=same):
            told.finding = found
            self._owed.pop((node, key), None)
            return False
        told.held = event
        return True

    def take_due(self, now_ns: int) -> list[FindingSettled]:
        """Return, once, what has been true for long enough."""
        if now_ns - self._pruned_ns >= QUIET_NS:
            self._pruned_ns = now_ns
            self._prune(now_ns)
        owed, self._owed = list(self._owed.values()), {}
        all_told = (told for kept in self._told.values() for told in kept.values())
        due = [one for one in all_told if one.changes.is_due(now_ns)]
        return [*owed, *_settle(due, now_ns)]

    def take_node(self, node: str, now_ns: int) -> list[FindingSettled]:
        """Return, once, all that is held of a node; its next word begins anew."""
        return list(_settle(self._told.pop(node, {}).values(), now_ns))

    def not_taken(self, event: FindingEvent) -> None:
        """Take a record for one that was not told: its agent sends it again."""
        told = self._told.get(event.origin.node, {}).get(_key(event))
        if told is not None:
            told.finding, told.changes = None, ChangeDamper(held_since_ns=int(bool(told.held)))

    def not_written(self, event: FindingSettled) -> None:
        """Have a row written later: nobody sends its records again."""
        self._owed.setdefault((event.node, event.key), event)

    def nodes(self) -> list[str]:
        """Return the nodes with recent reports."""
        return list(self._told)

    def _prune(self, now_ns: int) -> None:
        for node, kept in list(self._told.items()):
            for key, told in list(kept.items()):
                if told.held is None and not told.changes.is_recent(now_ns):
                    del kept[key]
            if not kept:
                del self._told[node]


def _settle(held: Iterable[_Told], now_ns: int) -> Iterator[FindingSettled]:
    for told in held:
        event, told.held = told.held, None
        if event is not None:
            told.finding = _finding(event)
            told.changes.note_told(now_ns)
            evidence = "" if isinstance(event.report, FindingRaised) else event.report.evidence
            seen_ns = event.seen_ns or event.at_ns
            yield FindingSettled(
                event.origin.node, _key(event), event.at_ns, told.finding, evidence, seen_ns
            )


def _finding(event: FindingEvent) -> Finding | None:
    return event.report.finding if isinstance(event.report, FindingRaised) else None


def _key(event: FindingEvent) -> FindingKey:
    report = event.report
    return report.finding.key if isinstance(report, FindingRaised) else report.key
