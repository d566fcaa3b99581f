"""Simulated disk under the real journal: it is full for a while, fails, or changes a bit."""

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from everstep_common.version import VERSION
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.journal.codec import UnreadableError, encode, kind_of
from everstep_controller.journal.port import (
    DamagedJournalError,
    JournalWriteError,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.sqlite.damage import verify_log
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.journal.sqlite.schema import SchemaError
from everstep_controller.runtime.fold import Fold

# What a start says of a file that it does not load.
DAMAGED = (DamagedJournalError, UnreadableError, SchemaError, sqlite3.DatabaseError)
# After so many events the state is kept, so that a start folds from there.
_SNAPSHOT_EVERY = 150
_PAGES_MAX = 2**31 - 2
# How often the controller was stopped and not killed before bits change: then there is no log.
_CLEAN = 0.5
# What stands in events that are stored as JSON; and how often a bit changes elsewhere.
_IN_EVENTS = (b'"sequence":', b'"generation":', b'"node":"', b'"at_ns":')
_ANYWHERE = 0.3


class _Store(SqliteJournal):
    """The journal's file on a disk that fails while it writes."""

    fails = False

    def commit(self) -> None:
        """See SqliteJournal. Raises sqlite3.OperationalError, as where the disk has an error."""
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        super().commit()


class JournalDisk:
    """Disk with the journal's file, as the controller's shell writes it and reads it at a start."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal"
        self._backup = folder / "backup"
        self._store: _Store | None = None
        # Nothing is appended from one failure on until a probe is written.
        self.full = False
        self._fills = self._fails = False
        self.refused = self.loads = self.kept = 0

    # --- as the shell uses it --------------------------------------------------------------------

    def load(self) -> tuple[Core, int]:
        """Return what the file folds to, as a start does, and how many events it has.

        Raises what is in DAMAGED.
        """
        self.close()
        verify_log(self._path)
        self._store = _Store(self._path)
        self._store.verify()
        fold = Fold(Core, self._store)
        for _ in fold.replay():
            pass
        core = fold.core
        assert isinstance(core, Core)
        self.full = False
        self.loads += 1
        self._limit()
        return core, self._store.last()[0]

    def append(self, event: events.Event, now_ns: int) -> bool:
        """Write an event down; return whether it is durable."""
        store = self._opened()
        if self.full:
            self.refused += 1
            return False
        seq = store.last()[0] + 1
        try:
            with store.transaction():
                store.append([StoredEvent(seq, now_ns, kind_of(event), encode(event))], [])
        except JournalWriteError:
            self.full = True
            self.refused += 1
            return False
        return True

    def recovers(self) -> bool:
        """Return whether something can be written again that could not before."""
        store = self._opened()
        if not self.full:
            return False
        try:
            store.probe()
        except JournalWriteError:
            return False
        self.full = False
        return True

    def keep_state(self, core: Core, now_ns: int) -> None:
        """Keep the state now and then, so that a start does not fold all events."""
        store = self._opened()
        seq = store.last()[0]
        if seq % _SNAPSHOT_EVERY or self.full:
            return
        with (
            suppress(JournalWriteError),
            store.transaction(),
        ):  # it is tried again after as many events
            store.save_snapshot(StoredSnapshot(seq, now_ns, VERSION, encode(core.state)))

    def close(self) -> None:
        """End the process that has it open."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def kill(self) -> None:
        """Kill the process that has it open: its log stays as it is."""
        if self._store is None:
            return
        files = [self._path, self._path.with_name(f"{self._path.name}-wal")]
        left = {file: file.read_bytes() for file in files if file.exists()}
        self.close()
        for file, content in left.items():
            file.write_bytes(content)

    def _opened(self) -> _Store:
        if self._store is None:
            raise RuntimeError("no start has loaded the journal")
        return self._store

    # --- what happens to it ----------------------------------------------------------------------

    def fill(self) -> None:
        """Have no page more: what fits into those that there are is still written."""
        self._fills = True
        self._limit()

    def fail(self) -> None:
        """Have every write fail."""
        self._fails = True
        self._limit()

    def mend(self) -> None:
        """Have room again, and write without errors."""
        self._fills = self._fails = False
        self._limit()

    def _limit(self) -> None:
        if (store := self._store) is None:
            return
        store.fails = self._fails
        (pages,) = next(store.query("PRAGMA page_count"))
        most = pages if self._fills else _PAGES_MAX
        next(store.query(f"PRAGMA max_page_count = {most}"))

    def back_up(self) -> None:
        """Copy the journal, if it is open."""
        if self._store is not None:
            self._backup.unlink(missing_ok=True)
            self.kept = self._store.last()[0]
            with (
                closing(sqlite3.connect(self._path)) as told,
                closing(sqlite3.connect(self._backup)) as copy,
            ):
                told.backup(copy)

    def put_back(self) -> int:
        """Put the copy in the journal's place, as an operator does; none if there is none.

        Return how many events it has.
        """
        self.close()
        for file in (self._path, *self._path.parent.glob(f"{self._path.name}-*")):
            file.unlink(missing_ok=True)
        if self.kept:
            shutil.copyfile(self._backup, self._path)
        return self.kept

    def flip(self, rng: random.Random, bits: int) -> None:
        """Change some bits of the journal's file or of its log, if there is one.

        Each is in what some event says, or anywhere. Nobody has it open.
        """
        if rng.random() < _CLEAN:
            with closing(sqlite3.connect(self._path)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log = self._path.with_name(f"{self._path.name}-wal")
        file = log if log.exists() and log.stat().st_size else self._path
        content = bytearray(file.read_bytes())
        for _ in range(bits if content else 0):
            said = rng.choice(_IN_EVENTS)
            at = content.find(said, rng.randrange(len(content)))
            anywhere = at < 0 or rng.random() < _ANYWHERE
            # The first character of a value: mostly another number or name, and none that breaks.
            place = rng.randrange(len(content)) if anywhere else at + len(said)
            content[place] ^= 1 << rng.randrange(8)
        file.write_bytes(bytes(content))
