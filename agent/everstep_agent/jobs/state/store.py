"""Job store: what the agent knows of its jobs, in SQLite, until the next boot of the node."""

import errno
import fcntl
import json
import logging
import os
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from everstep_agent.jobs.state.facts import JobFacts
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.jobs.state.records import plan_from_bytes, plan_to_bytes
from everstep_agent.persistence.data_folder import folder_problem
from everstep_agent.vault.snapshots.database import RuntimeDatabase, write_row, write_rows
from everstep_common.codec import CodecError, from_json, to_json

logger = logging.getLogger(__name__)
_SAVE = "INSERT OR REPLACE INTO job VALUES (?, ?, ?)"
_FORGET = "DELETE FROM job WHERE key = ?"


class JobStore:
    """Facts of all jobs, in SQLite in the runtime folder: there until the next boot."""

    _SCHEMA = (
        "CREATE TABLE IF NOT EXISTS job "
        "(key TEXT PRIMARY KEY, body TEXT NOT NULL, plan BLOB NOT NULL) STRICT",
        "CREATE TABLE IF NOT EXISTS agent (incarnation INTEGER NOT NULL) STRICT",
    )

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        # Each job's plan with its encoded form: it may name thousands of sources, and is saved far
        # more often than it changes.
        self._plans: dict[str, tuple[Plan, bytes]] = {}
        for statement in self._SCHEMA:
            self._db.execute(statement)

    @property
    def trouble(self) -> str:
        """Return why the last change was not written; "" where it was."""
        return self._db.trouble if isinstance(self._db, RuntimeDatabase) else ""

    def next_incarnation(self) -> int:
        """Return how often an agent has begun with this store."""
        (count,) = self._db.execute(
            "SELECT coalesce(max(incarnation), 0) + 1 FROM agent"
        ).fetchone()
        self._db.execute("DELETE FROM agent")
        self._db.execute("INSERT INTO agent VALUES (?)", (count,))
        return int(count)

    def save(self, facts: JobFacts) -> None:
        """Keep the facts of a job."""
        write_row(self._db, _SAVE, self._row(facts))

    def rename(self, key: str, facts: JobFacts) -> None:
        """Keep the facts of a job that had another key until now: never under both, or neither."""
        self._plans.pop(key, None)
        write_rows(self._db, [(_FORGET, (key,)), (_SAVE, self._row(facts))])

    def forget(self, key: str) -> None:
        """Forget a job."""
        self._plans.pop(key, None)
        write_row(self._db, _FORGET, (key,))

    def load(self) -> list[JobFacts]:
        """Return all jobs; a row that cannot be read is dropped with a warning."""
        found = []
        for key, body, plan in self._db.execute("SELECT key, body, plan FROM job").fetchall():
            try:
                facts = from_json(JobFacts, json.loads(body))
                found.append(replace(facts, plan=plan_from_bytes(plan)))
            except (CodecError, ValueError) as error:
                logger.warning("what was known of job %s cannot be read: %s", key, error)
                self.forget(key)
        return found

    def _row(self, facts: JobFacts) -> tuple[str, str, bytes]:
        known = cast("dict[str, object]", to_json(replace(facts, plan=NO_PLAN)))
        del known["plan"]
        return facts.key, json.dumps(known, separators=(",", ":")), self._encoded(facts)

    def _encoded(self, facts: JobFacts) -> bytes:
        plan, encoded = self._plans.get(facts.key, (None, b""))
        if plan is not facts.plan:
            encoded = plan_to_bytes(facts.plan)
            self._plans[facts.key] = (facts.plan, encoded)
        return encoded


def open_database(path: str) -> sqlite3.Connection:
    """Open the runtime database. It need not survive a power failure, so nothing is synced."""
    database = sqlite3.connect(path, isolation_level=None, factory=RuntimeDatabase)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    # A checkpoint of SQLite's own 1000 pages holds the event loop for 3 ms, of so many less than 1.
    database.execute("PRAGMA wal_autocheckpoint = 250")
    return database


@dataclass(frozen=True, slots=True)
class RuntimeFolder:
    """A folder that this agent has to itself, until it is closed."""

    path: Path
    _lock: int

    @classmethod
    def open(cls, path: Path) -> "RuntimeFolder":
        """Take the folder. Raises OSError, when another agent has it among other reasons."""
        path.mkdir(parents=True, exist_ok=True)
        if problem := folder_problem(path):
            raise OSError(errno.EPERM, problem, os.fspath(path))
        lock = os.open(path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise OSError(error.errno, "another agent uses this folder", os.fspath(path)) from error
        return cls(path, lock)

    def database(self) -> str:
        """Return the path of the runtime database, which holds transfer keys: private."""
        path = self.path / "jobs.sqlite"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return os.fspath(path)

    def close(self) -> None:
        """Let another agent have it."""
        os.close(self._lock)
