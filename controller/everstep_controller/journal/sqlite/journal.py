"""SQLite journal: the port's implementation, from the tables, their upkeep and their ledgers."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_controller.journal.port import JournalWriteError, LedgerRow
from everstep_controller.journal.sqlite import compaction, ledger_history
from everstep_controller.journal.sqlite.damage import verify_log
from everstep_controller.journal.sqlite.lock import JournalLock
from everstep_controller.journal.sqlite.store import JournalStore

# More than the file's free pages hold, so that a full disk shows.
_PROBE_BYTES = 65536


class SqliteJournal(JournalStore):
    """See JournalReader and JournalWriter."""

    def another_reader(self) -> "SqliteJournal":
        """See JournalReader. Raises sqlite3.Error."""
        return SqliteJournal(self.path, read_only=True)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See JournalWriter."""
        try:
            self.begin()
            yield
            self.commit()
        except sqlite3.Error as error:
            self.rollback()
            raise JournalWriteError(str(error)) from error
        except BaseException:
            self.rollback()
            raise

    def prune_snapshots(self, events_before_ns: int) -> int:
        """See JournalWriter."""
        return compaction.prune_snapshots(self, events_before_ns)

    def compact(self, events_before_ns: int, announcements_before_ns: int) -> int:
        """See JournalWriter."""
        return compaction.compact(self, events_before_ns, announcements_before_ns)

    def forget_outboxes(self, replaced: Iterable[str]) -> None:
        """See JournalWriter."""
        compaction.forget_outboxes(self, replaced)

    def save_ledger(self, row: LedgerRow) -> None:
        """See JournalWriter."""
        ledger_history.save_ledger(self, row)

    def ledger_rows(self, since_ns: int) -> Iterator[LedgerRow]:
        """See JournalReader."""
        return ledger_history.ledger_rows(self, since_ns)

    def probe(self) -> None:
        """See JournalWriter."""
        with self.transaction():
            self.set_fact("probe", bytes(_PROBE_BYTES))
        with self.transaction():
            self.execute("DELETE FROM fact WHERE name = 'probe'")


@dataclass(frozen=True, slots=True)
class SqliteBackend:
    """See JournalBackend: a file."""

    path: Path

    def lock(self) -> JournalLock:
        """See JournalBackend; the folder is made. Raises OSError, too."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return JournalLock(self.path)

    def verify(self) -> None:
        """See JournalBackend. Raises DamagedJournalError, ForeignLogError."""
        verify_log(self.path)

    def open_writer(self) -> SqliteJournal:
        """See JournalBackend. Raises sqlite3.Error, OSError, SchemaError, DamagedJournalError."""
        return SqliteJournal(self.path)

    def open_reader(self) -> SqliteJournal:
        """See JournalBackend. Raises sqlite3.Error, DamagedJournalError."""
        return SqliteJournal(self.path, read_only=True)
