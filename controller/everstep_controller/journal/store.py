"""Journal store: the SQLite file with events, decisions, snapshots and announcements."""

import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from everstep_controller.journal.schema import migrate

# Texts of a state are 67 MB for 12,500 nodes, and repeat themselves.
_FAST = 1


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it lies in the journal."""

    seq: int
    now_ns: int
    kind: str
    body: bytes


class Mark(NamedTuple):
    """All records of an outbox up to this sequence are journaled; a step has one of each node."""

    node: str
    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The state after an event, and the version of the code that folded it."""

    seq: int
    now_ns: int
    version: str
    state: bytes


@dataclass(frozen=True, slots=True)
class Announcement:
    """A line of the event list."""

    id: int
    seq: int
    at_ns: int
    subject: str
    reason: str
    message: str


class JournalStore:
    """One connection to the journal; used by the thread that made it.

    Writing methods do not commit: ``commit`` and ``rollback`` end the transaction that they opened.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open (and create) the file. Raises sqlite3.Error, OSError or SchemaError."""
        if not read_only:
            _create(path)
        self._path = path
        mode = "ro" if read_only else "rw"
        self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=5.0)
        self._db.isolation_level = None
        if not read_only:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            migrate(self._db)

    def another_reader(self) -> "JournalStore":
        """Return a connection for another thread, to be closed there. Raises sqlite3.Error."""
        return JournalStore(self._path, read_only=True)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

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
        self._db.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?)",
            [(event.seq, event.now_ns, event.kind, event.body) for event in events],
        )
        self._db.executemany(
            "INSERT INTO mark VALUES (?, ?, ?) ON CONFLICT (outbox) "
            "DO UPDATE SET sequence = max(sequence, excluded.sequence)",
            [(mark.outbox, mark.node, mark.sequence) for mark in marks],
        )

    def unmark(self, mark: Mark) -> None:
        """Enter that records of an outbox after this sequence were not taken after all."""
        self._db.execute(
            "UPDATE mark SET sequence = min(sequence, ?) WHERE outbox = ?",
            (mark.sequence, mark.outbox),
        )

    def record(self, seq: int, actions: bytes) -> None:
        """Write down what an event led to."""
        self._db.execute("INSERT OR REPLACE INTO decision VALUES (?, ?)", (seq, actions))

    def announce(self, announcements: Iterable[Announcement]) -> None:
        """Add lines to the event list."""
        self._db.executemany(
            "INSERT OR REPLACE INTO announcement VALUES (?, ?, ?, ?, ?, ?)",
            [(a.id, a.seq, a.at_ns, a.subject, a.reason, a.message) for a in announcements],
        )

    def reject(self, seq: int, error: str, left_out: Iterable[int] | None = None) -> None:
        """Mark an event that the core cannot take: folding leaves it out.

        Of a batch, folding takes each event alone, without those at the places ``left_out``.
        """
        places = None if left_out is None else " ".join(map(str, left_out))
        self._db.execute("INSERT OR REPLACE INTO rejection VALUES (?, ?, ?)", (seq, error, places))

    def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Keep the state, so that folding starts from it."""
        packed = zlib.compress(snapshot.state, _FAST)
        self._db.execute(
            "INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)",
            (snapshot.seq, snapshot.now_ns, snapshot.version, packed),
        )

    def set_fact(self, name: str, value: bytes) -> None:
        """Keep a value that is no event, such as a secret."""
        self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def fact(self, name: str) -> bytes | None:
        """Return a kept value."""
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def last(self) -> tuple[int, int]:
        """Return sequence and time of the newest event or snapshot; zeros if there is none."""
        row = self._db.execute(
            "SELECT seq, now_ns FROM event UNION ALL SELECT seq, now_ns FROM snapshot "
            "ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def snapshot(self, through: int | None = None) -> StoredSnapshot | None:
        """Return the newest snapshot, or the newest that is not after an event."""
        row = self._db.execute(
            "SELECT seq, now_ns, version, state FROM snapshot WHERE seq <= ? "
            "ORDER BY seq DESC LIMIT 1",
            (2**62 if through is None else through,),
        ).fetchone()
        if row is None:
            return None
        seq, now_ns, version, packed = row
        return StoredSnapshot(seq, now_ns, version, _unpacked(packed))

    def snapshots_taken(self) -> list[tuple[int, int]]:
        """Return after which event and when each snapshot was taken that is kept, oldest first."""
        return list(self._db.execute("SELECT seq, now_ns FROM snapshot ORDER BY seq"))

    def oldest_snapshot(self) -> StoredSnapshot | None:
        """Return the oldest snapshot that is kept."""
        row = self._db.execute("SELECT min(seq) FROM snapshot").fetchone()
        return None if row[0] is None else self.snapshot(int(row[0]))

    def events(self, after: int, through: int | None = None) -> Iterator[StoredEvent]:
        """Yield events in order, those that were rejected among them."""
        rows = self._db.execute(
            "SELECT seq, now_ns, kind, body FROM event WHERE seq > ? AND seq <= ? ORDER BY seq",
            (after, 2**62 if through is None else through),
        )
        for seq, now_ns, kind, body in rows:
            yield StoredEvent(seq, now_ns, kind, bytes(body))

    def last_decision(self) -> int:
        """Return the newest event whose actions are recorded."""
        row = self._db.execute("SELECT max(seq) FROM decision").fetchone()
        return int(row[0] or 0)

    def decisions(self, after: int) -> dict[int, bytes]:
        """Return the recorded actions by event."""
        rows = self._db.execute("SELECT seq, actions FROM decision WHERE seq > ?", (after,))
        return {seq: bytes(actions) for seq, actions in rows}

    def rejections(self) -> dict[int, tuple[int, ...] | None]:
        """Return the events that are left out as a whole, as None.

        Of a batch whose events are taken alone: the places of those that are left out.
        """
        rows = self._db.execute("SELECT seq, alone FROM rejection")
        return {
            seq: None if places is None else tuple(map(int, places.split())) for seq, places in rows
        }

    def marks(self) -> dict[str, int]:
        """Return how far each outbox is journaled."""
        return dict(self._db.execute("SELECT outbox, sequence FROM mark"))

    def outboxes(self) -> dict[str, str]:
        """Return the node of every outbox that has a mark."""
        return dict(self._db.execute("SELECT outbox, node FROM mark"))

    def last_announcement(self) -> int:
        """Return the number of the newest line of the event list."""
        row = self._db.execute("SELECT max(id) FROM announcement").fetchone()
        return int(row[0] or 0)

    def announcements(self, subject: str, limit: int, since_ns: int = 0) -> list[Announcement]:
        """Return the newest lines of the event list, oldest first, of one subject if named.

        None of a time before ``since_ns`` is among them.
        """
        where, values = ("WHERE subject = ?", (subject,)) if subject else ("", ())
        rows = self._db.execute(
            f"SELECT * FROM announcement {where} ORDER BY id DESC LIMIT ?", (*values, limit)
        ).fetchall()
        lines = [Announcement(*row) for row in reversed(rows)]
        # By number they are in the order of time, and no more than the limit are looked at.
        return [line for line in lines if line.at_ns >= since_ns]

    def query(self, statement: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one reading statement and yield its rows (for ledger_history.py)."""
        yield from self._db.execute(statement, tuple(values))

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run one writing statement and return how many rows it changed (for upkeep.py)."""
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
    """Return the text of a snapshot; empty, which nobody can read, where the file is damaged."""
    try:
        return zlib.decompress(state)
    except zlib.error:
        return b""


class JournalLockedError(Exception):
    """Another controller uses this journal."""


class JournalLock:
    """Holds ``<journal>.lock`` while open.

    Not the database itself: closing any descriptor of that file would drop SQLite's own locks.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(journal.name + ".lock")
        self._fd = -1

    def __enter__(self) -> "JournalLock":
        """Take the lock. Raises JournalLockedError when another process has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise JournalLockedError(
                f"{self._path}: another controller (process {holder}) uses this journal; "
                "stop it first, or configure another journal"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop the lock."""
        os.close(self._fd)
        self._fd = -1
