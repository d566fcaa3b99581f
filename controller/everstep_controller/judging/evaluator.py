"""Evaluator: debounces the judges' rulings, and says which verdicts on nodes changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from everstep_common.judging.book import BookChanges, BookEntry, FindingBook
from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Finding, FindingKey
from everstep_controller.core.events import VerdictChanged
from everstep_controller.judging.judge import DomainRuling, Judge, NodeEvidence, Ruling
from everstep_controller.judging.view import FleetView, Mask


@dataclass(frozen=True, slots=True)
class ControllerMoment:
    """A time on the controller's timeline, which is one boot that never ends."""

    wall_ns: int
    boot_id: str = ""

    @property
    def boot_ns(self) -> int:
        """See Moment."""
        return self.wall_ns


# In place of a node's name: findings about failure domains, which the core keeps as its own.
NO_NODE = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A finding of the controller about a node that is open, as the core keeps it."""

    finding: Finding
    since_ns: int


class Evaluator:
    """Counts in a row how often each ruling came; the core keeps which verdicts are open.

    So a change that did not reach the core is made again, and nothing is lost at a restart.
    """

    def __init__(self, judges: Sequence[Judge]) -> None:
        """Begin with nothing counted. Raises ValueError for a condition of two judges."""
        conditions = [one for judge in judges for one in judge.conditions]
        self._conditions = {one.name: one for one in conditions}
        if len(self._conditions) < len(conditions):
            raise ValueError("two judges find the same condition, and would undo each other's word")
        self._books: dict[str, FindingBook] = {}
        self._watched: Mask = np.zeros(0, dtype=np.bool_)

    def evaluate(
        self,
        view: FleetView,
        rulings: Iterable[Ruling | DomainRuling],
        verdicts: Mapping[str, Sequence[Verdict]],
    ) -> list[VerdictChanged]:
        """Return the verdicts that these rulings change; ``verdicts`` are the open ones by node."""
        changed = self.follow(view, verdicts)
        for ruling in rulings:
            changed += self.enter(view, ruling)
        return changed

    def follow(
        self, view: FleetView, verdicts: Mapping[str, Sequence[Verdict]]
    ) -> list[VerdictChanged]:
        """Begin a view with what the core has; return the end of verdicts that have no judge."""
        self._books = {node: book for node, book in self._books.items() if not book.idle}
        self._open_books(verdicts)
        self._watched = np.array([node in self._books for node in view.nodes], dtype=np.bool_)
        return list(_without_judge(verdicts, self._conditions))

    def enter(self, view: FleetView, ruling: Ruling | DomainRuling) -> list[VerdictChanged]:
        """Enter a ruling on the view; return what it changes. Raises ValueError and its own."""
        name = ruling.condition.name
        if name not in self._conditions:
            raise ValueError(f"a ruling on {name}, which is not in the `conditions` of its judge")
        if isinstance(ruling, DomainRuling):
            return list(self._changes_of_domains(view, ruling))
        return list(self._changes(view, ruling))

    def _open_books(self, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
        """Open the book of each node at what the core has of it."""
        for node in {*self._books, *verdicts}:
            held = [one for one in verdicts.get(node, ()) if _known(one, self._conditions)]
            book = self._books.get(node)
            if book is None or {*book.open_keys} != {one.finding.key for one in held}:
                entries = [BookEntry(one.finding, ControllerMoment(one.since_ns)) for one in held]
                self._books[node] = FindingBook(self._conditions, entries)

    def _changes(self, view: FleetView, ruling: Ruling) -> Iterator[VerdictChanged]:
        # A node that is healthy, and was so before, costs nothing.
        for i in np.flatnonzero(ruling.faulty | (ruling.healthy & self._watched)):
            fault = ruling.fault if ruling.faulty[i] else None
            key = FindingKey(ruling.condition.component, ruling.condition.name)
            evidence = ruling.explain(int(i))
            yield from self._enter(view, view.nodes[i], key, fault, evidence)

    def _changes_of_domains(
        self, view: FleetView, ruling: DomainRuling
    ) -> Iterator[VerdictChanged]:
        for i in np.flatnonzero(ruling.faulty | (ruling.healthy & (NO_NODE in self._books))):
            fault = ruling.fault if ruling.faulty[i] else None
            key = FindingKey(f"domain/{ruling.domains[i]}", ruling.condition.name)
            yield from self._enter(view, NO_NODE, key, fault, ruling.explain(int(i)))

    def _enter(
        self,
        view: FleetView,
        node: str,
        key: FindingKey,
        fault: Fault | None,
        evidence: NodeEvidence,
    ) -> Iterator[VerdictChanged]:
        book = self._books.setdefault(node, FindingBook(self._conditions))
        judgement = judged(key.component, key.condition, evidence.sentence, fault)
        changes = book.enter_judgements([judgement], ControllerMoment(view.now_ns))
        yield from _changed(node, changes, evidence)


def _changed(node: str, changes: BookChanges, evidence: NodeEvidence) -> Iterator[VerdictChanged]:
    sentence, measurements = evidence.sentence, evidence.measurements
    for entry in changes.raised:
        key = entry.finding.key
        yield VerdictChanged(node, key, entry.finding, sentence, measurements)
    for cleared in changes.cleared:
        yield VerdictChanged(node, cleared.key, None, sentence, measurements)


def _known(verdict: Verdict, conditions: Collection[str]) -> bool:
    return verdict.finding.condition in conditions


def _without_judge(
    verdicts: Mapping[str, Sequence[Verdict]], conditions: Mapping[str, Condition]
) -> Iterator[VerdictChanged]:
    """Yield the end of what nobody will ever clear: its judge is not in this version."""
    for node, held in verdicts.items():
        for one in held:
            if not _known(one, conditions):
                key, sentence = one.finding.key, "this controller has no judge of it any more"
                yield VerdictChanged(node, key, None, sentence, ())
