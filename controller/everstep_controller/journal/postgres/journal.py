"""PostgreSQL journal: the port's implementation, from its reads, its lease and its backend."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from everstep_controller.journal.checksums import links
from everstep_controller.journal.lease import BEAT_S
from everstep_controller.journal.port import (
    Announcement,
    HistoryKind,
    HistoryRow,
    JournalAccessError,
    JournalLostError,
    JournalUnknownError,
    JournalWriteError,
    Mark,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.postgres.candidate import PostgresCandidate
from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.lease_session import LeaseSession, Surroundings
from everstep_controller.journal.postgres.pending_writes import (
    DECISION,
    FACT,
    REJECTION,
    SNAPSHOT,
    PendingWrites,
    packed,
    put_back_mark,
    put_history,
    put_line,
    put_marks,
    put_snapshot,
    text_of,
)
from everstep_controller.journal.postgres.reader import PostgresReader
from everstep_controller.journal.retention import needed_snapshots
from everstep_controller.journal.sqlite.copying import target_problem
from everstep_controller.journal.sqlite.journal import copy_into_file

logger = logging.getLogger(__name__)

# Events that one transaction deletes: an hour of them is less, and the rest goes the next time.
_DELETED_MAX = 200_000
_FENCED = " and exists (select from fence)"


class PostgresJournal(PostgresReader):
    """See JournalWriter: what is written in a transaction is sent at its end, in one statement."""

    beat_s = BEAT_S

    def __init__(
        self, place: Place, session: LeaseSession, closed: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(place)
        self._session = session
        self._closed = closed
        self._pending: PendingWrites | None = None

    def close(self) -> None:
        """See JournalReader; the lease stays with whoever has locked the journal."""
        super().close()
        self._closed()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See JournalWriter."""
        self._pending = PendingWrites()
        try:
            yield
            writes = self._pending
        except JournalAccessError as error:
            raise JournalWriteError(str(error)) from error
        finally:
            self._pending = None
        self._session.write(writes)

    def settle(self) -> bool:
        """See JournalWriter."""
        return self._session.settle()

    @property
    def _writes(self) -> PendingWrites:
        if self._pending is None:
            raise RuntimeError("the journal is written outside a transaction")
        return self._pending

    def append(self, events: Iterable[StoredEvent], marks: Iterable[Mark]) -> None:
        """See JournalWriter."""
        writes = self._writes
        link = writes.events[-1][1] if writes.events else self._session.chain.link
        writes.events += links(link, events)
        put_marks(writes, self._session.marks, marks)

    def unmark(self, mark: Mark) -> None:
        """See JournalWriter."""
        put_back_mark(self._writes, self._session.marks, mark)

    def record(self, seq: int, actions: bytes) -> None:
        """See JournalWriter."""
        self._writes.put(DECISION, seq, packed(actions))

    def reject(self, seq: int, error: str, left_out: Iterable[int] | None = None) -> None:
        """See JournalWriter."""
        places = None if left_out is None else " ".join(map(str, left_out))
        self._writes.put(REJECTION, seq, error, places)

    def announce(self, announcements: Iterable[Announcement]) -> None:
        """See JournalWriter."""
        for line in announcements:
            put_line(self._writes, line)

    def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        """See JournalWriter."""
        put_snapshot(self._writes, snapshot)

    def save_history(self, rows: Iterable[HistoryRow]) -> None:
        """See JournalWriter."""
        for row in rows:
            put_history(self._writes, row)

    def set_fact(self, name: str, value: bytes) -> None:
        """See JournalWriter."""
        self._writes.put(FACT, name, value)

    def prune_snapshots(self, events_before_ns: int) -> int:
        """See JournalWriter."""
        return len(self._prune(events_before_ns)[1])

    def _prune(self, events_before_ns: int) -> tuple[list[int], list[int]]:
        """Have snapshots deleted that nobody needs; return those that stay, and those that go."""
        writes = self._writes
        new = [
            (int(str(row[0])), int(str(row[1]))) for row in writes.rows.get(SNAPSHOT, {}).values()
        ]
        taken = sorted({*self.snapshots_taken(), *new})
        needed = needed_snapshots(taken, events_before_ns)
        gone = [seq for seq, _ in taken if seq not in needed]
        for seq in gone:
            writes.remove(SNAPSHOT, seq)
        if gone:
            writes.delete(f"delete from everstep.snapshot where seq = any(%s){_FENCED}", gone)
        return sorted(needed), gone

    def compact(self, events_before_ns: int, announcements_before_ns: int) -> int:
        """See JournalWriter."""
        kept, _ = self._prune(events_before_ns)
        through = kept[0] if kept else 0
        deleted = self._delete_events(through, events_before_ns)
        self._writes.delete(
            f"delete from everstep.announcement where at_ns < %s{_FENCED}", announcements_before_ns
        )
        self._writes.delete(
            "delete from everstep.about where id < (select min(id) from everstep.announcement "
            f"where at_ns >= %s){_FENCED}",
            announcements_before_ns,
        )
        return deleted

    def _delete_events(self, through: int, before_ns: int) -> int:
        """Have the events deleted up to one that came before a time, and what hangs on them."""
        found = self._ask(
            "select seq, link from everstep.event where seq <= %s and now_ns < %s and seq <= "
            "(select min(seq) + %s from everstep.event) order by seq desc limit 1",
            (through, before_ns, _DELETED_MAX),
        )
        first = 0
        if found:
            first, link = int(found[0][0]) + 1, bytes(found[0][1])
            if first - 1 > self._session.chain.base_seq:
                self._writes.base = first - 1, link
            self._writes.delete(f"delete from everstep.event where seq < %s{_FENCED}", first)
        counted = self._ask("select count(*) from everstep.event where seq < %s", (first,))
        oldest = self._ask("select min(seq) from everstep.event where seq >= %s", (first,))[0][0]
        for table in ("decision", "rejection"):
            self._writes.delete(
                f"delete from everstep.{table} where seq < %s{_FENCED}",
                through if oldest is None else int(oldest),
            )
        return int(counted[0][0]) if found else 0

    def forget_history(self, before_ns: int) -> None:
        """See JournalWriter."""
        hours = HistoryKind.JOB_HOUR.value
        self._writes.delete(
            "delete from everstep.history as old where begin_ns < %s and (kind <> %s or begin_ns < "
            "(select max(begin_ns) from everstep.history where kind = %s and key = old.key and "
            "begin_ns < %s) or not exists (select 1 from everstep.history where kind = %s and "
            f"key = old.key and begin_ns >= %s)){_FENCED}",
            before_ns,
            hours,
            hours,
            before_ns,
            hours,
            before_ns,
        )

    def forget_outboxes(self, replaced: Iterable[str]) -> None:
        """See JournalWriter."""
        gone = [text_of(outbox) for outbox in replaced]
        self._writes.forgotten += gone
        self._writes.delete(f"delete from everstep.mark where outbox = any(%s){_FENCED}", gone)

    def probe(self) -> None:
        """See JournalWriter."""
        with self.transaction():
            pass


@dataclass
class PostgresBackend:
    """See JournalBackend: a database, whose lease this process takes."""

    place: Place
    around: Surroundings
    _told: str = field(default="", init=False)
    _session: LeaseSession | None = field(default=None, init=False)
    _beating: "_Beating | None" = field(default=None, init=False)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See JournalBackend: take the lease, and keep it until the end."""
        session = LeaseSession(self.place, self.around, self._told)
        try:
            session.take()
            self._hold(session)
            yield
        finally:
            session.forget_look()
            self._let_go(session)

    @contextmanager
    def standing_by(self) -> Iterator[PostgresCandidate]:
        """See JournalBackend."""
        session = LeaseSession(self.place, self.around)
        try:
            yield PostgresCandidate(session, self.around, lambda: self._hold(session))
        finally:
            session.forget_look()
            self._let_go(session)

    def tell(self, told: str) -> None:
        """See JournalBackend."""
        self._told = told

    def give_back(self) -> None:
        """See JournalBackend."""
        if self._session is not None:
            self._let_go(self._session)

    def _hold(self, session: LeaseSession) -> None:
        self._session = session
        self._beat()

    def _let_go(self, session: LeaseSession) -> None:
        self._session = None
        try:
            self._rest()
        finally:
            session.release()

    def verify(self) -> None:
        """See JournalBackend: the server looks after its own files."""

    def open_writer(self) -> PostgresJournal:
        """See JournalBackend; until it is closed it writes in time to keep the lease."""
        if self._session is None:
            raise RuntimeError("the journal is opened for writing without its lock")
        self._rest()
        return PostgresJournal(self.place, self._session, self._beat)

    def open_reader(self) -> PostgresReader:
        """See JournalBackend."""
        return PostgresReader(self.place)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """See JournalBackend: all of it is raised so already."""
        yield

    def copy_problem(self, target: Path) -> str:
        """See JournalBackend."""
        return target_problem(target)

    def copy_to(self, target: Path) -> int:
        """See JournalBackend; the copy is a file as of the other kind of journal."""
        with closing(self.open_reader()) as reader, reader.one_moment():
            return copy_into_file(reader, target)

    def damage_advice(self) -> str:
        """See JournalBackend."""
        return (
            "rows were changed, by a disk or by hand. Restore the database from a backup, or, "
            "where there is none, 'drop schema everstep cascade'"
        )

    def _beat(self) -> None:
        if self._session is not None and self._beating is None:
            self._beating = _Beating(self._session)
            self._beating.start()

    def _rest(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.end()


class _Beating(threading.Thread):
    """Keeps a lease while no writer is open, as while a long journal is read."""

    def __init__(self, session: LeaseSession) -> None:
        super().__init__(name="journal lease")
        self._session = session
        self._over = threading.Event()
        self._lost: JournalLostError | None = None

    def run(self) -> None:
        """Write once a second."""
        is_unknown = False
        while self._lost is None and not self._over.wait(BEAT_S):
            with suppress(JournalWriteError):
                try:
                    if is_unknown:
                        self._session.settle()
                    self._session.write(PendingWrites())
                    is_unknown = False
                except JournalUnknownError as error:
                    is_unknown = True
                    logger.info("the lease of the journal is not kept: %s", error)
                except JournalLostError as error:
                    self._lost = error

    def end(self) -> None:
        """Stop; the session is the caller's again. Raises JournalLostError."""
        self._over.set()
        self.join()
        if self._lost is not None:
            raise self._lost
