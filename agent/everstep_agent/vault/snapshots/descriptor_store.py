"""Descriptor store: keeps snapshot memory over a restart of the agent, described in SQLite."""

import json
import secrets
import sqlite3
from dataclasses import dataclass, replace
from typing import Protocol

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.snapshots.database import write_row
from everstep_agent.vault.snapshots.manifest_store import ManifestStore
from everstep_common import systemd
from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.rank_messages import Entry


class DescriptorStore(Protocol):
    """A process that keeps descriptors while the agent is down."""

    def store(self, name: str, fd: int) -> bool:
        """Keep a duplicate under a name; False when nobody does."""
        ...

    def remove(self, name: str) -> bool:
        """Close what is kept under a name."""
        ...


class SystemdDescriptorStore:
    """The service manager of this process (systemd, or ``everstep-agent hold``)."""

    def store(self, name: str, fd: int) -> bool:
        """See DescriptorStore."""
        return systemd.store_fd(name, fd)

    def remove(self, name: str) -> bool:
        """See DescriptorStore."""
        return systemd.remove_fd(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRegion:
    """Facts of one region that the next agent process must know."""

    # Lineage of the job whose it is.
    lineage: str
    generation: int
    rank: int
    # Index of the slot, -1 for a replica.
    slot: int
    state: str
    step: int = -1
    epoch: int = 0
    root_hash: bytes = b""
    entries: tuple[Entry, ...] = ()
    # Written by another node's rank, or fetched: never given out for writing.
    replica: bool = False
    # Process that may write it; 0 for a replica.
    writer_pid: int = 0
    # How many slots were made together with it.
    slots_made: int = 0
    # The same for all slots that were made together, higher for later ones.
    allocation: int = 0
    # The number of the manifest that has the entries instead, when they are many.
    manifest_number: int = 0


class RegionStore:
    """Regions that the next agent process of this boot finds again."""

    _SCHEMA = "CREATE TABLE IF NOT EXISTS memory (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT"

    def __init__(self, database: sqlite3.Connection, descriptors: DescriptorStore) -> None:
        self._db = database
        self._db.execute(self._SCHEMA)
        self._manifests = ManifestStore(database)
        self._descriptors = descriptors

    async def save_manifest(self, entries: tuple[Entry, ...]) -> None:
        """Write a manifest down before memory that has it is stored or changed."""
        await run_in_slices(self._manifests.save(entries))

    async def add(self, fd: int, memory: StoredRegion, threads: ThreadPool) -> str:
        """Store new memory; return the name to change or remove it by."""
        name = f"vault-{secrets.token_hex(8)}"
        await threads.run(lambda: self._descriptors.store(name, fd))
        self.update(name, memory)
        return name

    def update(self, name: str, memory: StoredRegion) -> None:
        """Change what is known of the memory."""
        if manifest := self._manifests.refer(name, memory.entries):
            memory = replace(memory, entries=(), manifest_number=manifest)
        body = json_text(memory)
        write_row(self._db, "INSERT OR REPLACE INTO memory VALUES (?, ?)", (name, body))

    def remove(self, name: str) -> None:
        """Forget the memory, and let its descriptor be closed."""
        write_row(self._db, "DELETE FROM memory WHERE name = ?", (name,))
        self._manifests.refer(name, ())
        self._descriptors.remove(name)

    def load(self) -> dict[str, StoredRegion]:
        """Return everything that is stored; rows that cannot be read are dropped."""
        known: dict[str, StoredRegion] = {}
        for name, body in self._db.execute("SELECT name, body FROM memory").fetchall():
            try:
                memory = from_json(StoredRegion, json.loads(body))
                if memory.manifest_number:
                    entries = self._manifests.load(name, memory.manifest_number)
                    memory = replace(memory, entries=entries, manifest_number=0)
                known[name] = memory
            except (CodecError, ValueError):
                self.remove(name)
        self._manifests.remove_unused()
        return known
