"""Evaluator: debounces the judges' rulings, and says which verdicts on nodes changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from everstep_common.judging.book import BookChanges, BookEntry, FindingBook
from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import judged
from everstep_common.judging.findings import Finding
from everstep_controller.core.events import VerdictChanged
from everstep_controller.judging.judge import Judge, NodeEvidence, Ruling
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

    def evaluate(
        self,
        view: FleetView,
        rulings: Iterable[Ruling],
        verdicts: Mapping[str, Sequence[Verdict]],
    ) -> list[VerdictChanged]:
        """Return the verdicts that these rulings change; ``verdicts`` are the open ones by node."""
        changed = list(_without_judge(verdicts, self._conditions))
        self._follow(verdicts)
        watched = np.array([node in self._books for node in view.nodes], dtype=np.bool_)
        for ruling in rulings:
            changed += self._enter(view, ruling, watched)
        self._books = {node: book for node, book in self._books.items() if not book.idle}
        return changed

    def _follow(self, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
        """Open the book of each node at what the core has of it."""
        for node in {*self._books, *verdicts}:
            held = [one for one in verdicts.get(node, ()) if _known(one, self._conditions)]
            book = self._books.get(node)
            if book is None or {*book.open_keys} != {one.finding.key for one in held}:
                entries = [BookEntry(one.finding, ControllerMoment(one.since_ns)) for one in held]
                self._books[node] = FindingBook(self._conditions, entries)

    def _enter(self, view: FleetView, ruling: Ruling, watched: Mask) -> Iterator[VerdictChanged]:
        # A node that is healthy, and was so before, costs nothing.
        for i in np.flatnonzero(ruling.faulty | (ruling.healthy & watched)):
            node, evidence = view.nodes[i], ruling.explain(int(i))
            book = self._books.setdefault(node, FindingBook(self._conditions))
            condition, fault = ruling.condition, ruling.fault if ruling.faulty[i] else None
            judgement = judged(condition.component, condition.name, evidence.sentence, fault)
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
