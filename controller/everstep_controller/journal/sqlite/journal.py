"""SQLite journal: the port's implementation, from its tables, their upkeep and its history."""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from everstep_controller.journal.copy import copy_journal
from everstep_controller.journal.port import (
    DamagedJournalError,
    HistoryKind,
    HistoryRange,
    HistoryRow,
    JournalAccessError,
    JournalLockedError,
    JournalReader,
    JournalRefusedError,
    JournalUnknownError,
    JournalWriteError,
)
from everstep_controller.journal.sqlite import compaction, copying, history
from everstep_controller.journal.sqlite.damage import verify_log
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
        is_commit = False
        try:
            self.begin()
            yield
            is_commit = True
            self.commit()
        except sqlite3.Error as error:
            self.rollback()
            if is_commit and _may_be_on_disk(error):
                raise JournalUnknownError(str(error)) from error
            raise JournalWriteError(str(error)) from error
        except BaseException:
            self.rollback()
            raise

    @property
    def beat_s(self) -> None:
        """See JournalWriter: a lock says who has the file."""
        return

    def settle(self) -> bool:
        """See JournalWriter: what a disk has kept of a failed commit counts until the next one.

        That one is written over it, and whoever opens the file then finds nothing of it.
        """
        try:
            self.probe()
        except JournalWriteError as error:
            raise JournalUnknownError(str(error)) from error
        return False

    def prune_snapshots(self, events_before_ns: int) -> int:
        """See JournalWriter."""
        return compaction.prune_snapshots(self, events_before_ns)

    def compact(self, events_before_ns: int, announcements_before_ns: int) -> int:
        """See JournalWriter."""
        return compaction.compact(self, events_before_ns, announcements_before_ns)

    def forget_outboxes(self, replaced: Iterable[str]) -> None:
        """See JournalWriter."""
        compaction.forget_outboxes(self, replaced)

    def save_history(self, rows: Iterable[HistoryRow]) -> None:
        """See JournalWriter."""
        history.save_history(self, rows)

    def history(self, asked: HistoryRange) -> Iterator[HistoryRow]:
        """See JournalReader."""
        return history.history(self, asked)

    def history_before(self, asked: HistoryRange) -> dict[str, HistoryRow]:
        """See JournalReader."""
        return history.history_before(self, asked)

    def history_keys(self, asked: HistoryRange, limit: int) -> list[str]:
        """See JournalReader."""
        return history.history_keys(self, asked, limit)

    def history_span(self, kind: HistoryKind) -> tuple[int, int]:
        """See JournalReader."""
        return history.history_span(self, kind)

    def forget_history(self, before_ns: int) -> None:
        """See JournalWriter."""
        history.forget_history(self, before_ns)

    def probe(self) -> None:
        """See JournalWriter."""
        with self.transaction():
            self.set_fact("probe", bytes(_PROBE_BYTES))
        with self.transaction():
            self.execute("DELETE FROM fact WHERE name = 'probe'")


def _may_be_on_disk(error: sqlite3.Error) -> bool:
    """Return whether a commit failed at the disk, which may have kept it for the next start."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_IOERR


class JournalLock:
    """Holds ``<journal>.lock`` while open.

    It stays there, but where ``leaves_none`` says that no controller starts with this journal.
    Not the database itself: closing any descriptor of that file would drop SQLite's own locks.
    """

    def __init__(self, journal: Path, *, leaves_none: bool = False) -> None:
        self._path = journal.with_name(journal.name + ".lock")
        self._leaves_none = leaves_none
        self._fd = -1

    def __enter__(self) -> "JournalLock":
        """Take the lock. Raises JournalLockedError when another process has it."""
        fd = self._locked()
        # Whoever had it may have removed it meanwhile, and then it keeps nobody out.
        while not _is_at(fd, self._path):
            os.close(fd)
            fd = self._locked()
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def _locked(self) -> int:
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
        return fd

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop the lock."""
        if self._leaves_none:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1


def _is_at(fd: int, path: Path) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class SqliteBackend:
    """See JournalBackend: a file."""

    path: Path

    # It is a copy that is read once, and no controller's: nothing is left beside it.
    is_copy: bool = False

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See JournalBackend; the folder is made. Raises OSError, too."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        left = copying.leaving_no_log(self.path) if self.is_copy else nullcontext()
        with JournalLock(self.path, leaves_none=self.is_copy), left:
            yield

    def standing_by(self) -> NoReturn:
        """See JournalBackend."""
        raise JournalRefusedError(
            "the journal is a file, which a standby on another machine cannot follow: name a "
            "database of PostgreSQL as journal (docs/postgresql.md), or remove role"
        )

    def give_back(self) -> None:
        """See JournalBackend: the lock ends with its process."""

    def tell(self, told: str) -> None:
        """See JournalBackend: nobody else has the file open."""

    def verify(self) -> None:
        """See JournalBackend. Raises DamagedJournalError, ForeignLogError."""
        verify_log(self.path)

    def open_writer(self) -> SqliteJournal:
        """See JournalBackend. Raises sqlite3.Error, OSError, SchemaError, DamagedJournalError."""
        return SqliteJournal(self.path)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """See JournalBackend."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.InterfaceError) as error:
            raise JournalAccessError(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise DamagedJournalError(str(error)) from error

    def damage_advice(self) -> str:
        """See JournalBackend."""
        return (
            "bits changed on its disk, which has to be looked after. Put a backup in its place, or "
            "move it and its -wal away if there is none"
        )

    def copy_problem(self, target: Path) -> str:
        """See JournalBackend."""
        return copying.copy_problem(self.path, target)

    def copy_to(self, target: Path) -> int:
        """See JournalBackend."""
        copying.copy_file(self.path, target)
        return verified_last(target)

    def open_reader(self) -> SqliteJournal:
        """See JournalBackend. Raises sqlite3.Error, DamagedJournalError."""
        return SqliteJournal(self.path, read_only=True)


def copy_into_file(source: JournalReader, target: Path) -> int:
    """Copy a journal of any kind to a file, and read that; return the newest event of it."""
    copying.new_file(target)
    with closing(SqliteJournal(target)) as copy:
        copy_journal(source, copy)
    copying.end_log(target)
    return verified_last(target)


def verified_last(target: Path) -> int:
    """Read all of a copy and return the newest event of it. Raises DamagedJournalError."""
    with closing(SqliteJournal(target, read_only=True)) as copy:
        copy.verify(whole=True)
        return copy.last()[0]
