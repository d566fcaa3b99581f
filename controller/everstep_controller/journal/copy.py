"""Copy of a journal into an empty one of any kind, row by row through the port.

What is copied is what the port tells: a row that is damaged ends it. Events keep their numbers, so
a state that is folded from the copy is the same.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from everstep_controller.journal.port import (
    DAY_NS,
    Announcement,
    HistoryKind,
    HistoryRange,
    HistoryRow,
    JournalReader,
    JournalRefusedError,
    JournalWriter,
    Mark,
    StoredSnapshot,
)

T = TypeVar("T")

# Rows of one transaction.
_ROWS = 2000
# A fact that says that a copy is not whole yet.
_UNFINISHED = "copy is unfinished"


def copy_journal(source: JournalReader, target: JournalWriter) -> int:
    """Copy everything; return the newest event. The target has to be new: JournalRefusedError."""
    refuse_unfinished(target)
    if target.last() != (0, 0) or target.facts() or target.last_announcement():
        raise JournalRefusedError(
            "there is a journal already, and what is copied needs an empty place: name another one"
        )
    with target.transaction():
        target.set_fact(_UNFINISHED, b"1")
    _copy_events(source, target)
    for line in _groups(_lines(source)):
        with target.transaction():
            target.announce(line)
    for kind in HistoryKind:
        for rows in _groups(_history(source, kind)):
            with target.transaction():
                target.save_history(rows)
    for snapshot in reversed(list(_snapshots(source))):
        with target.transaction():
            target.save_snapshot(snapshot)
    nodes = source.outboxes()
    marks = [Mark(nodes[outbox], outbox, number) for outbox, number in source.marks().items()]
    with target.transaction():
        target.append([], marks)
        for name, value in source.facts().items():
            target.set_fact(name, value)
        target.set_fact(_UNFINISHED, b"")
    return target.last()[0]


def refuse_unfinished(journal: JournalReader) -> None:
    """Raise JournalRefusedError for a copy that was interrupted."""
    if journal.fact(_UNFINISHED):
        raise JournalRefusedError(
            "it is a copy that was interrupted: remove it (a file, or by 'drop schema everstep "
            "cascade' in the database) and copy again"
        )


def _copy_events(source: JournalReader, target: JournalWriter) -> None:
    decisions, errors = source.decisions(0), source.rejection_errors()
    rejected = source.rejections()
    for events in _groups(source.events(0)):
        with target.transaction():
            target.append(events, [])
            for seq in (event.seq for event in events):
                if seq in decisions:
                    target.record(seq, decisions[seq])
                if seq in rejected:
                    target.reject(seq, errors[seq], rejected[seq])


def _lines(source: JournalReader) -> Iterator[Announcement]:
    number = 0
    while lines := source.announcements_after(number, _ROWS):
        yield from lines
        number = lines[-1].id


def _history(source: JournalReader, kind: HistoryKind) -> Iterator[HistoryRow]:
    first_ns, last_ns = source.history_span(kind)
    begin_ns = first_ns // DAY_NS * DAY_NS
    while begin_ns <= last_ns:
        yield from source.history(HistoryRange(kind, begin_ns, begin_ns + DAY_NS))
        begin_ns += DAY_NS


def _snapshots(source: JournalReader) -> Iterator[StoredSnapshot]:
    """Yield those that can be read, newest first."""
    snapshot = source.snapshot()
    while snapshot is not None:
        if snapshot.state:
            yield snapshot
        snapshot = source.snapshot(snapshot.seq - 1)


def _groups(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while group := list(islice(left, _ROWS)):
        yield group
