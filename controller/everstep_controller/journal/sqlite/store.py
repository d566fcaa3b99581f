"""Journal store: the SQLite file with events, decisions, snapshots and announcements."""

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everstep_controller.journal.checksums import Chain, checksum, links, verified
from everstep_controller.journal.port import (
    Announcement,
    ControllerSeen,
    DamagedJournalError,
    Mark,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.sound_rows import DAMAGED, line_of, with_about
from everstep_controller.journal.sqlite.damage import verify_tables, verify_whole
from everstep_controller.journal.sqlite.schema import add_functions, migrate, view_as_newest

# Reason of a line of the event list that is not as it was written.
# Columns of rows, in the order in which their checksums take them.
_MARK = "outbox, node, sequence"
_LINE = "id, seq, at_ns, subject, reason, message"
_CHECKED: Mapping[str, str] = {
    "decision": "seq, actions",
    "rejection": "seq, error, alone",
    "snapshot": "seq, now_ns, version, state",
    "announcement": _LINE,
    "about": "id, about",
    "mark": _MARK,
    "fact": "name, value",
    "history": "kind, key, begin_ns, at_ns, content",
}
# Texts of a state are 67 MB for 12,500 nodes, and repeat themselves.
_FAST = 1


class JournalStore:
    """One connection to the journal; used by the thread that made it.

    Writing methods do not commit: ``commit`` and ``rollback`` end the transaction that they opened.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open (and create) the file. sqlite3.Error, OSError, SchemaError, DamagedJournalError."""
        if not read_only:
            _create(path)
        self.path = path
        mode = "ro" if read_only else "rw"
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=5.0)
        self._db.isolation_level = None
        # A text that is damaged is read as another one, and known by the checksum of its row.
        self._db.text_factory = lambda text: text.decode(errors="replace")
        add_functions(self._db)
        try:
            self._prepare(read_only=read_only)
        except UnicodeDecodeError as error:  # what SQLite says of it has the same bytes in it
            raise DamagedJournalError("its list of tables is no text") from error

    def _prepare(self, *, read_only: bool) -> None:
        if read_only:
            view_as_newest(self._db)
            return
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        migrate(self._db)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def verify(self, *, whole: bool = False) -> None:
        """Look for damage where a start reads, or in all of the file. DamagedJournalError."""
        if not whole:
            verify_tables(self._db)
            return
        verify_whole(self._db)
        for _ in self.events(0):
            pass
        self._verify_rows()

    def _verify_rows(self) -> None:
        for table, columns in _CHECKED.items():
            wrong = self._db.execute(
                f"SELECT {columns} FROM {table} WHERE checksum IS NOT checksum({columns}) LIMIT 1"
            ).fetchone()
            if wrong is not None:
                raise _damaged(table, f"row {wrong[0]}")

    def begin(self) -> None:
        """Open a transaction."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make what was written durable."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        """Forget what was written since ``begin``."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def append(self, events: Iterable[StoredEvent], marks: Iterable[Mark]) -> None:
        """Add events, and how far their outboxes are journaled with them."""
        chain = self._chain()
        told = list(links(chain.link, events))
        if told:
            self._db.executemany(
                "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
                [(event.seq, event.now_ns, event.kind, event.body, link) for event, link in told],
            )
            last, link = told[-1]
            self._set_chain(Chain(last.seq, link, chain.base_seq, chain.base_link))
        self._db.executemany(
            "INSERT INTO mark VALUES (?1, ?2, ?3, checksum(?1, ?2, ?3)) ON CONFLICT (outbox) "
            "DO UPDATE SET sequence = max(sequence, excluded.sequence), "
            "checksum = checksum(outbox, node, max(sequence, excluded.sequence))",
            [(mark.outbox, mark.node, mark.sequence) for mark in marks],
        )

    def _chain(self) -> Chain:
        row = self._db.execute(
            "SELECT seq, link, base_seq, base_link, checksum FROM head"
        ).fetchone()
        if row is None or checksum(*row[:4]) != row[4]:
            raise DamagedJournalError("the row that says where its events end is damaged")
        return Chain(*row[:4])

    def _set_chain(self, chain: Chain) -> None:
        self._db.execute(
            "UPDATE head SET seq = ?1, link = ?2, base_seq = ?3, base_link = ?4, "
            "checksum = checksum(?1, ?2, ?3, ?4)",
            (chain.seq, chain.link, chain.base_seq, chain.base_link),
        )

    def delete_events(self, through: int, before_ns: int) -> int:
        """Delete the events up to one that came before a time; return how many."""
        newest = self._db.execute(
            "SELECT seq, link FROM event WHERE seq <= ? AND now_ns < ? ORDER BY seq DESC LIMIT 1",
            (through, before_ns),
        ).fetchone()
        if newest is None:
            return 0
        seq, link = newest
        chain = self._chain()
        if seq > chain.base_seq:
            self._set_chain(Chain(chain.seq, chain.link, seq, link))
        return self.execute("DELETE FROM event WHERE seq <= ?", (seq,))

    def unmark(self, mark: Mark) -> None:
        """Enter that records of an outbox after this sequence were not taken after all."""
        self._db.execute(
            "UPDATE mark SET sequence = min(sequence, ?1), "
            "checksum = checksum(outbox, node, min(sequence, ?1)) WHERE outbox = ?2",
            (mark.sequence, mark.outbox),
        )

    def record(self, seq: int, actions: bytes) -> None:
        """Write down what an event led to."""
        self._put("decision", (seq, actions))

    def announce(self, announcements: Iterable[Announcement]) -> None:
        """Add lines to the event list."""
        for one in announcements:
            row = (one.id, one.seq, one.at_ns, one.subject, one.reason, one.message)
            self._put("announcement", row)
            if one.about:
                self._put("about", (one.id, one.about))

    def reject(self, seq: int, error: str, left_out: Iterable[int] | None = None) -> None:
        """Mark an event that the core cannot take: folding leaves it out.

        Of a batch, folding takes each event alone, without those at the places ``left_out``.
        """
        places = None if left_out is None else " ".join(map(str, left_out))
        self._put("rejection", (seq, error, places))

    def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Keep the state, so that folding starts from it."""
        packed = zlib.compress(snapshot.state, _FAST)
        self._put("snapshot", (snapshot.seq, snapshot.now_ns, snapshot.version, packed))

    def _put(self, table: str, row: tuple[object, ...]) -> None:
        places = ", ".join("?" * (len(row) + 1))
        self._db.execute(
            f"INSERT OR REPLACE INTO {table} VALUES ({places})", (*row, checksum(*row))
        )

    def set_fact(self, name: str, value: bytes) -> None:
        """Keep a value that is no event, such as a secret."""
        self._put("fact", (name, value))

    def fact(self, name: str) -> bytes | None:
        """Return a kept value. Raises DamagedJournalError."""
        found = list(self._rows("fact", "name, value", "WHERE name = ?", (name,)))
        return bytes(found[0][1]) if found else None

    def facts(self) -> dict[str, bytes]:
        """Return all kept values by their names. Raises DamagedJournalError."""
        return {name: bytes(value) for name, value in self._rows("fact", "name, value")}

    def controllers(self) -> tuple[ControllerSeen, ...]:
        """Return nobody: one controller alone has the file open."""
        return ()

    def replication(self) -> None:
        """Return none: a file is on one machine."""

    def _rows(
        self, table: str, columns: str, where: str = "", values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows that are as they were written. Raises DamagedJournalError for another one."""
        statement = f"SELECT {columns}, checksum FROM {table} {where}"
        for *row, told in self._db.execute(statement, tuple(values)):
            if checksum(*row) != told:
                raise _damaged(table, f"{columns.partition(',')[0]} {row[0]!r:.80}")
            yield tuple(row)

    def last(self) -> tuple[int, int]:
        """Return sequence and time of the newest event or snapshot; zeros if there is none."""
        row = self._db.execute(
            "SELECT seq, now_ns FROM event UNION ALL SELECT seq, now_ns FROM snapshot "
            "ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def snapshot(self, through: int | None = None) -> StoredSnapshot | None:
        """Return the newest snapshot, or the newest that is not after an event.

        The state of one that is damaged is empty, which nobody can read.
        """
        row = self._db.execute(
            "SELECT seq, now_ns, version, state, checksum FROM snapshot WHERE seq <= ? "
            "ORDER BY seq DESC LIMIT 1",
            (2**62 if through is None else through,),
        ).fetchone()
        if row is None:
            return None
        seq, now_ns, version, packed, told = row
        sound = checksum(seq, now_ns, version, packed) == told
        return StoredSnapshot(seq, now_ns, version, _unpacked(packed) if sound else b"")

    def snapshots_taken(self) -> list[tuple[int, int]]:
        """Return after which event and when each snapshot was taken that is kept, oldest first."""
        return list(self._db.execute("SELECT seq, now_ns FROM snapshot ORDER BY seq"))

    def oldest_snapshot(self) -> StoredSnapshot | None:
        """Return the oldest snapshot that is kept."""
        row = self._db.execute("SELECT min(seq) FROM snapshot").fetchone()
        return None if row[0] is None else self.snapshot(int(row[0]))

    def removed_through(self) -> int:
        """Return the newest event that is no longer kept, because a snapshot is; 0 for none."""
        (first,) = self._db.execute("SELECT min(seq) FROM event WHERE seq > 0").fetchone()
        return self._chain().seq if first is None else int(first) - 1

    def events(self, after: int, through: int | None = None) -> Iterator[StoredEvent]:
        """Yield events in order, those that were rejected among them. DamagedJournalError."""
        with self._reading():
            chain = self._chain()
            before = self._db.execute(
                "SELECT link FROM event WHERE seq <= ? AND seq > ? ORDER BY seq DESC LIMIT 1",
                (after, chain.base_seq),
            ).fetchone()
            rows = self._db.execute(
                "SELECT seq, now_ns, kind, body, link FROM event WHERE seq > ? AND seq <= ? "
                "ORDER BY seq",
                (after, 2**62 if through is None else through),
            )
            told = ((StoredEvent(*row), link) for *row, link in rows)
            link = chain.base_link if before is None else before[0]
            yield from verified(told, chain, link, after, whole=chain.reaches(through))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Have several statements see one state of the file, which another connection changes."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def last_decision(self) -> int:
        """Return the newest event whose actions are recorded."""
        newest = self._rows("decision", "seq, actions", "ORDER BY seq DESC LIMIT 1")
        return next((int(seq) for seq, _ in newest), 0)

    def decisions(self, after: int) -> dict[int, bytes]:
        """Return the recorded actions by event."""
        rows = self._rows("decision", "seq, actions", "WHERE seq > ?", (after,))
        return {seq: bytes(actions) for seq, actions in rows}

    def rejections(self) -> dict[int, tuple[int, ...] | None]:
        """Return the events that are left out as a whole, as None.

        Of a batch whose events are taken alone: the places of those that are left out.
        """
        return {
            seq: None if places is None else tuple(map(int, places.split()))
            for seq, _, places in self._rows("rejection", "seq, error, alone")
        }

    def rejection_errors(self) -> dict[int, str]:
        """Return why events are left out."""
        return {seq: error for seq, error, _ in self._rows("rejection", "seq, error, alone")}

    def marks(self) -> dict[str, int]:
        """Return how far each outbox is journaled."""
        return {outbox: sequence for outbox, _, sequence in self._rows("mark", _MARK)}

    def outboxes(self) -> dict[str, str]:
        """Return the node of every outbox that has a mark."""
        return {outbox: node for outbox, node, _ in self._rows("mark", _MARK)}

    def last_announcement(self) -> int:
        """Return the number of the newest line of the event list."""
        newest = self._rows("announcement", _LINE, "ORDER BY id DESC LIMIT 1")
        return next((int(row[0]) for row in newest), 0)

    def announcements(self, subject: str, limit: int, since_ns: int = 0) -> list[Announcement]:
        """Return the newest lines of the event list, oldest first, of one subject if named.

        None of a time before ``since_ns`` is among them.
        """
        where, values = ("WHERE subject = ?", (subject,)) if subject else ("", ())
        rows = self._db.execute(
            f"SELECT {_LINE}, checksum FROM announcement {where} ORDER BY id DESC LIMIT ?",
            (*values, limit),
        ).fetchall()
        lines = [line_of(row) for row in reversed(rows)]
        # By number they are in the order of time, and no more than the limit are looked at.
        return [line for line in lines if line.at_ns >= since_ns or line.reason == DAMAGED]

    def first_announcement(self) -> int:
        """Return the number of the oldest line that is kept; 0 for none."""
        (first,) = self._db.execute("SELECT min(id) FROM announcement").fetchone()
        return int(first or 0)

    def announcements_after(self, number: int, limit: int) -> list[Announcement]:
        """Return the lines after a number, oldest first, with what programs are told of them."""
        line = ", ".join(f"announcement.{column}" for column in _LINE.split(", "))
        rows = self._db.execute(
            f"SELECT about, about.checksum, {line}, announcement.checksum FROM announcement "
            "LEFT JOIN about USING (id) WHERE announcement.id > ? ORDER BY announcement.id LIMIT ?",
            (number, limit),
        ).fetchall()
        return [with_about(line_of(tuple(row)), about, told) for about, told, *row in rows]

    def query(self, statement: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one reading statement and yield its rows (for history.py)."""
        yield from self._db.execute(statement, tuple(values))

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run one writing statement and return how many rows it changed (for compaction.py)."""
        return self._db.execute(statement, tuple(values)).rowcount


def _create(path: Path) -> None:
    """Make the file where there is none, because SQLite would make it readable for everybody.

    One that is there is not opened: to close any descriptor of it drops the locks that SQLite has
    on it for all connections of this process. Then whoever reads the journal next, as a backup
    does, takes itself for the last one, and removes the log that this process goes on writing.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(fd)


def _unpacked(state: bytes) -> bytes:
    try:
        return zlib.decompress(state)
    except zlib.error:
        return b""


def _damaged(table: str, place: str) -> DamagedJournalError:
    return DamagedJournalError(f"{place} of its table '{table}' is not as it was written")
