"""Disk store: what the agent remembers over a restart, written by a thread nobody waits for."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from everstep_agent.persistence.agent_database import (
    PendingChanges,
    Remembered,
    load,
    open_or_replace,
    write,
)

# An acknowledgement alone may wait for company: losing it only means that the record is sent twice.
_LAZY_DELETE_S = 1.0
_RETRY_S = 1.0


class StoreError(Exception):
    """The data folder cannot be used; one sentence says why."""


class LostStore:
    """Stands in for a data folder that could not be read: keeps nothing, and says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def put_record(self, sequence: int, payload: bytes) -> None:
        """Keep nothing."""

    def acknowledge(self, sequence: int, lasting: int) -> None:
        """Keep nothing."""

    def note(self, key: str, value: str) -> None:
        """Keep nothing."""

    def trouble(self) -> str:
        """Say why nothing is kept."""
        return f"{self._why}; restart the agent when the disk is back"

    def close(self, timeout_s: float) -> None:
        """Close nothing."""


class DiskStore:
    """The agent's memory on disk. Every call returns at once; a dying or full disk blocks nobody.

    What was put survives a SIGKILL of the agent once the thread has committed it: on a healthy disk
    within milliseconds. ``trouble`` says when that takes longer than the deadline.
    """

    def __init__(self, path: Path, now_ns: Callable[[], int], deadline_ns: int) -> None:
        self._path = path
        self._now_ns = now_ns
        self._deadline_ns = deadline_ns
        self._changed = threading.Condition()
        self._pending = PendingChanges()
        self._waiting_since_ns: int | None = None
        self._error = ""
        self._closing = False
        self._loaded = threading.Event()
        self._remembered: Remembered | None = None
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)

    def load(self, timeout_s: float) -> Remembered:
        """Start the thread; return what is on disk. Raises StoreError when that cannot be read."""
        self._thread.start()
        self._loaded.wait(timeout_s)
        with self._changed:
            if self._remembered is None:
                # Too late for this process: what the disk may still answer is for the next one.
                self._closing = True
                raise StoreError(self._error or f"{self._path}: no answer within {timeout_s:g} s")
            return self._remembered

    def put_record(self, sequence: int, payload: bytes) -> None:
        """Keep a record until it is acknowledged."""
        with self._changed:
            self._pending.records[sequence] = payload
            self._touch()

    def acknowledge(self, sequence: int, lasting: int) -> None:
        """Forget the records up to this one; ``lasting``: the newest of them but for progress."""
        with self._changed:
            self._pending.acknowledge(sequence, lasting)
            self._touch()

    def note(self, key: str, value: str) -> None:
        """Keep a value under a key."""
        with self._changed:
            self._pending.notes[key] = value
            self._touch()

    def trouble(self) -> str:
        """Say why changes do not reach the disk; empty when they do."""
        with self._changed:
            if self._error:
                return self._error
            since = self._waiting_since_ns
            waited_ns = self._now_ns() - since if since is not None else 0
        if waited_ns > self._deadline_ns:
            return f"{self._path}: a write has not returned for {waited_ns / 1e9:.0f} s"
        return ""

    def close(self, timeout_s: float) -> None:
        """Write what is left, unless the disk takes longer than this."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _touch(self) -> None:
        if self._waiting_since_ns is None and self._pending.urgent():
            self._waiting_since_ns = self._now_ns()
        self._changed.notify()

    # --- on the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        connection = self._open()
        self._loaded.set()
        while connection is not None and (taken := self._take()):
            try:
                write(connection, taken)
            except sqlite3.Error as error:
                self._give_back(taken, f"{self._path}: {error}")
            else:
                self._written()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection | None:
        try:
            connection = open_or_replace(self._path)
            remembered = load(connection)
        except (OSError, sqlite3.Error) as error:
            with self._changed:
                self._error = f"{self._path}: {error}"
            return None
        with self._changed:
            self._remembered = remembered
        return connection

    def _take(self) -> PendingChanges | None:
        """Wait for something to write; None when the agent closes and nothing is left."""
        with self._changed:
            while not self._pending.urgent() and not self._closing:
                lazy = _LAZY_DELETE_S if self._pending else None
                if not self._changed.wait(lazy) and self._pending:
                    break
            if self._closing and (self._error or not self._pending):
                return None
            taken, self._pending = self._pending, PendingChanges()
            return taken

    def _give_back(self, taken: PendingChanges, error: str) -> None:
        with self._changed:
            taken.merge_newer(self._pending)
            self._pending = taken
            self._error = error
            self._changed.wait_for(lambda: self._closing, _RETRY_S)

    def _written(self) -> None:
        with self._changed:
            self._error = ""
            self._waiting_since_ns = self._now_ns() if self._pending.urgent() else None
