"""Invariants of several controllers with one journal, each a function of what was recorded. Pure.

Each returns a sentence for each violation; none is what a run is for.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from chaos.evidence import ControllerEnd, EventRow, Evidence, Note, RecordKey
from everstep_controller.journal.checksums import linked
from everstep_controller.journal.port import StoredEvent

_SHOWN_MAX = 20
# Reports whose rows name no records: a step has one row for all nodes.
_WITHOUT_ROW = frozenset({"StepsCompleted"})
# What a controller says before it ends by itself, and is right to end.
_EXPECTED_ENDS = (
    "has taken the journal's lease",
    "and this controller may act no more",
    "another controller",
    "cannot start with the journal",
    "the journal cannot be written",
)


def one_order(evidence: Evidence) -> Iterator[str]:
    """All events have one order: numbers without a gap, each linked to the one before it."""
    ends = evidence.ends
    seq, link = ends.base_seq, ends.base_link
    for row in evidence.rows:
        if row.seq != seq + 1:
            yield f"event {row.seq} follows event {seq}"
        seq, link = row.seq, linked(link, _stored(row))
        if row.link != link:
            yield f"event {row.seq} ({row.kind}) is not linked to the one before it"
            link = row.link
    if (seq, link) != (ends.head, ends.link):
        yield f"the events end with {seq}, and the lease's row says {ends.head}"


def _stored(row: EventRow) -> StoredEvent:
    return StoredEvent(row.seq, row.now_ns, row.kind, row.body)


def acknowledged_once(evidence: Evidence) -> Iterator[str]:
    """Each record that was acknowledged is in the journal exactly once, any other at most once."""
    found = Counter(evidence.journaled)
    for key, times in found.items():
        if times > 1:
            yield f"record {key.sequence} of outbox {key.outbox} is journaled {times} times"
    for note in evidence.notes:
        if note.kind == "forgotten":
            yield f"{note.node} was welcomed with less than had been acknowledged to it"
    for key, what in acknowledged(evidence.notes).items():
        if not found[key]:
            yield f"record {key.sequence} of outbox {key.outbox} ({what}) was acknowledged and lost"


def decided_alike(evidence: Evidence) -> Iterator[str]:
    """Each decision follows from the journal: a replay comes to the same."""
    for difference in evidence.differences:
        yield f"a replay decides otherwise: {difference}"


def terms_at_agents(evidence: Evidence) -> Iterator[str]:
    """No agent takes an order of a lower term than one that it has taken or been welcomed with."""
    highest: dict[str, int] = {}
    for note in evidence.notes:
        if note.kind not in ("welcome", "taken"):
            continue
        term, known = note.number("term"), highest.get(note.node, 0)
        if note.kind == "taken" and term < known:
            order = note.text("order")
            yield f"{note.node} took order {order} of term {term} after it knew of term {known}"
        highest[note.node] = max(known, term)


def one_term_of_orders(evidence: Evidence) -> Iterator[str]:
    """An order's id is of one meaning: no two terms send one with different bodies."""
    kinds: dict[tuple[str, str], str] = {}
    for note in evidence.notes:
        if note.kind in ("taken", "refused"):
            key = note.node, note.text("order")
            what = kinds.setdefault(key, note.text("what"))
            if what != note.text("what"):
                yield f"order {key[1]} to {key[0]} was {what}, and then {note.text('what')}"


def one_writer(evidence: Evidence) -> Iterator[str]:
    """Each row is written by the holder of the newest term; no older one writes after its first."""
    terms: dict[str, int] = {}
    term = 0
    for taking in evidence.takings:
        if taking.term < term:
            yield f"the lease's term went from {term} to {taking.term}"
        term = max(term, taking.term)
        if taking.writer:
            known = terms.setdefault(taking.writer, taking.term)
            if known != taking.term:
                yield f"{taking.writer} holds terms {known} and {taking.term}"
    highest = 0
    for row in evidence.written:
        if row.writer not in terms:
            yield f"event {row.seq} was written by {row.writer!r}, which never held the lease"
            continue
        if terms[row.writer] < highest:
            yield (
                f"event {row.seq} was written under term {terms[row.writer]}, after the first row "
                f"of term {highest}"
            )
        highest = max(highest, terms[row.writer])


def ends_are_told(evidence: Evidence) -> Iterator[str]:
    """Each controller that ends by itself says why in one sentence, and none shows a traceback."""
    for end in evidence.controllers:
        named = f"{end.name}, life {end.life}"
        if "Traceback" in end.log:
            yield f"{named}: a traceback: {_after(end.log, 'Traceback')}"
        if not end.was_killed and end.status and not _is_told(end):
            last = (end.log.splitlines() or ["nothing"])[-1]
            yield f"{named} ended with {end.status}, and said last: {last}"
        if not (end.was_killed or end.was_asked or end.status):
            yield f"{named} ended with 0, and nobody had asked it to"


def _is_told(end: ControllerEnd) -> bool:
    last = "\n".join(end.log.splitlines()[-3:])
    return any(sentence in last for sentence in _EXPECTED_ENDS)


def _after(text: str, word: str) -> str:
    return " | ".join(text[text.index(word) :].splitlines()[:_SHOWN_MAX])


Invariant = Callable[[Evidence], Iterator[str]]

INVARIANTS: Mapping[str, Invariant] = MappingProxyType(
    {
        "one total order": one_order,
        "acknowledged records exactly once": acknowledged_once,
        "decisions follow from the journal": decided_alike,
        "no agent takes an older term": terms_at_agents,
        "an order's id has one meaning": one_term_of_orders,
        "no row under an older term": one_writer,
        "ends are told": ends_are_told,
    }
)


def checked(evidence: Evidence) -> Mapping[str, int]:
    """Return how many things each invariant has looked at."""
    orders = sum(note.kind in ("taken", "refused") for note in evidence.notes)
    return {
        "one total order": len(evidence.rows),
        "acknowledged records exactly once": len(acknowledged(evidence.notes)),
        "decisions follow from the journal": evidence.replayed,
        "no agent takes an older term": orders,
        "an order's id has one meaning": orders,
        "no row under an older term": len(evidence.written),
        "ends are told": len(evidence.controllers),
    }


def acknowledged(notes: Sequence[Note]) -> Mapping[RecordKey, str]:
    """Return the records that are journaled one by one and were acknowledged, and their kinds.

    To the process that recorded them: what an agent had not sent or written when it was killed is
    nobody's, and the numbers of the next process are higher.
    """
    waiting: dict[str, dict[int, str]] = {}
    found: dict[RecordKey, str] = {}
    for note in notes:
        outbox = note.text("outbox")
        mine = waiting.setdefault(outbox, {})
        if note.kind == "begun":
            mine.clear()
        elif note.kind == "recorded":
            what = note.text("what")
            if what not in _WITHOUT_ROW and not note.told.get("flaps"):
                mine[note.number("sequence")] = what
        elif note.kind == "ack":
            for sequence in [one for one in mine if one <= note.number("through")]:
                found[RecordKey(outbox, sequence)] = mine.pop(sequence)
    return found


def violations(evidence: Evidence) -> Mapping[str, Sequence[str]]:
    """Return by the invariant's name what violates it."""
    return {name: list(holds(evidence)) for name, holds in INVARIANTS.items()}
