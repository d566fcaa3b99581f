"""Pending writes of a transaction, and the one statement that makes all of them under the lease.

A client that is stopped with a transaction open keeps its locks for ever. So nothing is sent before
all of it is known, and then in one statement: it moves the lease's row on, where that still says
what this writer knows of it, and writes the rest only if it did.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_controller.journal.checksums import checksum
from everstep_controller.journal.port import (
    Announcement,
    HistoryKind,
    HistoryRow,
    Mark,
    StoredEvent,
    StoredSnapshot,
)

# Shorter bodies gain nothing; a stream of zlib begins with this byte, and no JSON does.
_PACKED_FROM = 200
_PACKED = b"\x78"
_FAST = 1

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table: the types of its columns, the last of which is a checksum, and of its key."""

    name: str
    types: Mapping[str, str]
    key: tuple[str, ...]

    def upsert(self) -> str:
        """Return the part of the statement that puts rows there, each in its key's place."""
        columns = ", ".join(self.types)
        told = ", ".join(f"%b::{kind}[]" for kind in self.types.values())
        changed = ", ".join(f"{one} = excluded.{one}" for one in self.types if one not in self.key)
        return (
            f"insert into everstep.{self.name} ({columns}) select * from unnest({told}) "
            "where exists (select from fence) "
            f"on conflict ({', '.join(self.key)}) do update set {changed}"
        )


def _table(name: str, key: str, /, **types: str) -> Table:
    return Table(name, {**types, "checksum": "bytea"}, tuple(key.split()))


DECISION = _table("decision", "seq", seq="int8", actions="bytea")
REJECTION = _table("rejection", "seq", seq="int8", error="text", alone="text")
SNAPSHOT = _table("snapshot", "seq", seq="int8", now_ns="int8", version="text", state="bytea")
ANNOUNCEMENT = _table(
    "announcement", "id",
    id="int8", seq="int8", at_ns="int8", subject="text", reason="text", message="text",
)  # fmt: skip
ABOUT = _table("about", "id", id="int8", about="bytea")
MARK = _table("mark", "outbox", outbox="text", node="text", sequence="int8")
FACT = _table("fact", "name", name="text", value="bytea")
HISTORY = _table(
    "history", "kind key begin_ns",
    kind="text", key="text", begin_ns="int8", at_ns="int8", content="bytea",
)  # fmt: skip
_EVENT = Table(
    "event",
    {"seq": "int8", "now_ns": "int8", "kind": "text", "body": "bytea", "link": "bytea"},
    ("seq",),
)
# An event is written once: one whose number is taken is a mistake that must be heard of.
_APPEND = _EVENT.upsert().partition(" on conflict")[0]


@dataclass(slots=True)
class PendingWrites:
    """What a transaction is to write: of each row what was said of it last."""

    # Events with their links.
    events: list[tuple[StoredEvent, bytes]] = field(default_factory=list)
    rows: dict[Table, dict[Row, Row]] = field(default_factory=dict)
    # Statements that delete, each with its values.
    deletions: list[tuple[str, Sequence[object]]] = field(default_factory=list)
    # Outboxes whose marks are changed: the node and how far they are journaled then.
    marks: dict[str, tuple[str, int]] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    # Number and link of the newest event that is deleted.
    base: tuple[int, bytes] | None = None

    def put(self, table: Table, *values: object) -> None:
        """Have a row written in its key's place."""
        clean = tuple(text_of(value) if isinstance(value, str) else value for value in values)
        columns = list(table.types)
        place = tuple(clean[columns.index(one)] for one in table.key)
        self.rows.setdefault(table, {})[place] = (*clean, checksum(*clean))

    def remove(self, table: Table, *place: object) -> None:
        """Have a row not written that was to be."""
        self.rows.get(table, {}).pop(place, None)

    def delete(self, statement: str, *values: object) -> None:
        """Have rows deleted; none of those that are written here may be among them."""
        self.deletions.append((statement, values))

    def parts(self) -> Iterator[tuple[str, Sequence[object]]]:
        """Yield the parts of the statement behind the lease's, each with its values."""
        if self.events:
            told = [
                (one.seq, one.now_ns, text_of(one.kind), packed(one.body), link)
                for one, link in self.events
            ]
            yield _APPEND, _columns(told)
        for table, rows in self.rows.items():
            if rows:
                yield table.upsert(), _columns(rows.values())
        yield from self.deletions


def put_line(writes: PendingWrites, line: Announcement) -> None:
    """Have a line of the event list written, with what programs are told of it."""
    writes.put(ANNOUNCEMENT, line.id, line.seq, line.at_ns, line.subject, line.reason, line.message)
    if line.about:
        writes.put(ABOUT, line.id, line.about)


def put_snapshot(writes: PendingWrites, snapshot: StoredSnapshot) -> None:
    """Have the state written."""
    state = zlib.compress(snapshot.state, _FAST)
    writes.put(SNAPSHOT, snapshot.seq, snapshot.now_ns, snapshot.version, state)


def put_history(writes: PendingWrites, row: HistoryRow) -> None:
    """Have a row of the history written; an incident has one, whenever it began."""
    if row.kind is HistoryKind.INCIDENT:
        others = [place for place in writes.rows.get(HISTORY, {}) if place[:2] == place_of(row)[:2]]
        for place in others:
            writes.remove(HISTORY, *place)
        writes.delete(
            "delete from everstep.history where kind = %s and key = %s and begin_ns <> %s and "
            "exists (select from fence)",
            *place_of(row),
        )
    writes.put(HISTORY, *place_of(row), row.at_ns, row.content)


def place_of(row: HistoryRow) -> tuple[str, str, int]:
    """Return the key of a row of the history."""
    return row.kind.value, text_of(row.key), row.begin_ns


def put_marks(
    writes: PendingWrites, known: Mapping[str, tuple[str, int]], marks: Iterable[Mark]
) -> None:
    """Have marks moved on; none goes back."""
    for mark in marks:
        outbox, node = text_of(mark.outbox), text_of(mark.node)
        before = writes.marks.get(outbox) or known.get(outbox)
        kept_node, kept = before or (node, mark.sequence)
        _put_mark(writes, outbox, kept_node, max(kept, mark.sequence))


def put_back_mark(writes: PendingWrites, known: Mapping[str, tuple[str, int]], mark: Mark) -> None:
    """Have a mark that is there moved back."""
    outbox = text_of(mark.outbox)
    before = writes.marks.get(outbox) or known.get(outbox)
    if before is not None:
        _put_mark(writes, outbox, before[0], min(before[1], mark.sequence))


def _put_mark(writes: PendingWrites, outbox: str, node: str, sequence: int) -> None:
    writes.marks[outbox] = node, sequence
    writes.put(MARK, outbox, node, sequence)


def packed(body: bytes) -> bytes:
    """Return a body as it is stored: compressed where that gains something."""
    if len(body) < _PACKED_FROM and not body.startswith(_PACKED):
        return body
    return zlib.compress(body, _FAST)


def unpacked(stored: bytes) -> bytes:
    """Return a body from what is stored; what cannot be read is left as it is, and known as such.

    Its checksum is that of the body.
    """
    if not stored.startswith(_PACKED):
        return stored
    try:
        return zlib.decompress(stored)
    except zlib.error:
        return stored


def text_of(value: str) -> str:
    """Return a text that PostgreSQL takes: it has no character 0."""
    return value.replace("\0", "\ufffd")


def _columns(rows: Iterable[Row]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
