"""Agent database: the SQLite schema of what is remembered, and one transaction per write."""

import contextlib
import os
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS note (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""
# Sequences are reserved on disk before they are used, this many at a time. A restarted agent begins
# above its reservation, so that a number that was sent but never written is not used twice.
RESERVATION = 100_000
# Note of the cluster that the agent belongs to.
CLUSTER_NOTE = "cluster"
# Note of the jobs that have ended there lately.
ENDS_NOTE = "ended_jobs"
# Notes by which the controllers of one cluster know an agent, or it them and their jobs.
_OF_CLUSTER = (CLUSTER_NOTE, ENDS_NOTE, "outbox", "reserved", "acknowledged", "highest_term")


@dataclass(frozen=True, slots=True)
class Remembered:
    """Data that the last agent of this data folder left."""

    outbox: str
    reserved_through: int = RESERVATION
    records: tuple[bytes, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    # The newest record but for progress that was acknowledged.
    acknowledged: int = 0


def forgetful() -> Remembered:
    """Return what an agent begins with that has no disk."""
    return Remembered(outbox=uuid.uuid4().hex)


@dataclass(slots=True)
class PendingChanges:
    """Changes that are not on disk yet: the newest value of each thing."""

    records: dict[int, bytes] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    acknowledged: int = 0
    # The newest acknowledged record but for progress.
    lasting: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.notes or self.acknowledged)

    def urgent(self) -> bool:
        """Return whether something would be lost if this were never written."""
        return bool(self.records or self.notes)

    def merge_newer(self, newer: "PendingChanges") -> None:
        """Add what came later."""
        self.records |= newer.records
        self.notes |= newer.notes
        self.acknowledge(newer.acknowledged, newer.lasting)

    def acknowledge(self, sequence: int, lasting: int) -> None:
        """Forget the records up to this one; ``lasting``: the newest of them but for progress."""
        self.acknowledged = max(self.acknowledged, sequence)
        self.lasting = lasting or self.lasting
        for known in [known for known in self.records if known <= self.acknowledged]:
            del self.records[known]


def open_or_replace(path: Path) -> sqlite3.Connection:
    """Open the file; one that is no database is put aside. Raises OSError and sqlite3.Error."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        path.rename(path.with_suffix(".damaged"))
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    _make_private(path)
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=True)
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL, so that a reservation outlives a power cut; a thread pays for it, no sender waits.
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    return connection


def _make_private(path: Path) -> None:
    """Let nobody else read what jobs have told, whatever the folder allows.

    SQLite gives its own files the mode of this one.
    """
    if path.exists():
        path.chmod(0o600)
    else:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def load(connection: sqlite3.Connection) -> Remembered:
    """Return what was remembered, and reserve the next sequences. Raises sqlite3.Error."""
    notes = dict(connection.execute("SELECT key, value FROM note"))
    outbox = notes.get("outbox") or uuid.uuid4().hex
    used_through = int(notes.get("reserved", "0"))
    with _transaction(connection):
        for key, value in (("outbox", outbox), ("reserved", str(used_through + RESERVATION))):
            connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))
    rows = connection.execute("SELECT payload FROM record ORDER BY sequence").fetchall()
    return Remembered(
        outbox=outbox,
        reserved_through=used_through + RESERVATION,
        records=tuple(payload for (payload,) in rows),
        notes=notes,
        acknowledged=int(notes.get("acknowledged", "0")),
    )


def forget_cluster(path: Path) -> str:
    """Forget what a cluster's controller knows this agent by; return its id. Raises sqlite3.Error.

    What the agent knows of its node stays.
    """
    with contextlib.closing(_connect(path)) as connection, _transaction(connection):
        notes: dict[str, str] = dict(connection.execute("SELECT key, value FROM note"))
        connection.execute("DELETE FROM record")
        connection.executemany("DELETE FROM note WHERE key = ?", [(key,) for key in _OF_CLUSTER])
    return notes.get(CLUSTER_NOTE, "")


def write(connection: sqlite3.Connection, taken: PendingChanges) -> None:
    """Write all of it or nothing. Raises sqlite3.Error."""
    with _transaction(connection):
        connection.executemany(
            "INSERT OR REPLACE INTO record VALUES (?, ?)", list(taken.records.items())
        )
        connection.executemany(
            "INSERT OR REPLACE INTO note VALUES (?, ?)", list(taken.notes.items())
        )
        if taken.acknowledged:
            connection.execute("DELETE FROM record WHERE sequence <= ?", (taken.acknowledged,))
            # Kept, so that a controller that has lost what it acknowledged is found out.
            value = ("acknowledged", str(taken.lasting))
            connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", value)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
