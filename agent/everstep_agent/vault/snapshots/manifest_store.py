"""Manifest store: long manifests in SQLite, in parts, each once for all slots that have it."""

import json
import sqlite3

from everstep_agent.vault.snapshots.database import write_row
from everstep_agent.vault.snapshots.manifest import dropped_in_parts
from everstep_common.codec import from_json, json_text
from everstep_common.long_frames import Parts, finish
from everstep_common.rank_messages import Entry

# Shards in one row, written in half a millisecond; up to as many are kept in the memory's own row.
_PART = 128
# Shards whose rows are removed at once.
_REMOVED = 16 * _PART


class ManifestStore:
    """A manifest stays as long as some memory refers to it, and a little longer."""

    _SCHEMA = """CREATE TABLE IF NOT EXISTS manifest
        (id INTEGER, part INTEGER, body TEXT NOT NULL, PRIMARY KEY (id, part)) STRICT"""
    # How many unused manifests are kept: between two copies in the same memory nothing refers to
    # its manifest, which the next copy usually has again.
    _IDLE_MAX = 16

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._db.execute(self._SCHEMA)
        (self._newest,) = self._db.execute("SELECT coalesce(max(id), 0) FROM manifest").fetchone()
        # Numbers of manifests by the id() of their tuple, which is held so that no other gets it.
        self._ids: dict[int, tuple[int, tuple[Entry, ...]]] = {}
        self._users: dict[int, set[str]] = {}
        self._used_by: dict[str, int] = {}

    def save(self, entries: tuple[Entry, ...]) -> Parts[None]:
        """Write a manifest that is not written yet; a short one needs no rows of its own."""
        if len(entries) <= _PART or id(entries) in self._ids:
            return
        yield from self._drop_idle()
        self._newest += 1
        number = self._newest
        for begin in range(0, len(entries), _PART):
            body = json_text(entries[begin : begin + _PART], tuple[Entry, ...])
            write_row(self._db, "INSERT INTO manifest VALUES (?, ?, ?)", (number, begin, body))
            yield
        self._know(number, entries)

    def refer(self, name: str, entries: tuple[Entry, ...]) -> int:
        """Some memory has this manifest from now on; return its number, 0 for one not kept here."""
        number, same = self._ids.get(id(entries), (0, ()))
        self._release(name)
        if not number or same is not entries:
            return 0
        self._users[number].add(name)
        self._used_by[name] = number
        return number

    def load(self, name: str, number: int) -> tuple[Entry, ...]:
        """Return the manifest of some memory; () when it is not there any more."""
        known = [entries for other, entries in self._ids.values() if other == number]
        entries = known[0] if known else self._read(number)
        if entries and not known:
            self._know(number, entries)
        self.refer(name, entries)
        return entries

    def remove_unused(self) -> None:
        """Remove what nothing refers to: its memory did not outlive the last agent."""
        for (number,) in self._db.execute("SELECT DISTINCT id FROM manifest").fetchall():
            if not self._users.get(number):
                self._remove(number)

    def _know(self, number: int, entries: tuple[Entry, ...]) -> None:
        self._ids[id(entries)] = (number, entries)
        self._users.setdefault(number, set())

    def _read(self, number: int) -> tuple[Entry, ...]:
        statement = "SELECT body FROM manifest WHERE id = ? ORDER BY part"
        found: list[Entry] = []
        for (body,) in self._db.execute(statement, (number,)).fetchall():
            found += from_json(tuple[Entry, ...], json.loads(body))
        return tuple(found)

    def _release(self, name: str) -> None:
        number = self._used_by.pop(name, 0)
        if number:
            self._users[number].discard(name)

    def _drop_idle(self) -> Parts[None]:
        idle = [number for number, users in self._users.items() if not users]
        for number in idle[: -self._IDLE_MAX]:
            yield from self._removed(number)

    def _remove(self, number: int) -> None:
        finish(self._removed(number))

    def _removed(self, number: int) -> Parts[None]:
        """Forget a manifest, then remove its rows and drop its shards in parts."""
        self._users.pop(number, None)
        found = [entries for other, entries in self._ids.values() if other == number]
        self._ids = {key: known for key, known in self._ids.items() if known[0] != number}
        shards: list[Entry] = []
        for entry in found.pop() if found else ():
            shards.append(entry)
            yield
        for end in range(_REMOVED, len(shards) + _REMOVED, _REMOVED):
            write_row(self._db, "DELETE FROM manifest WHERE id = ? AND part < ?", (number, end))
            yield
        write_row(self._db, "DELETE FROM manifest WHERE id = ?", (number,))
        yield from dropped_in_parts(shards)
