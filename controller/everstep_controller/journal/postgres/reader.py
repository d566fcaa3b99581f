"""Reader of a journal in PostgreSQL: a connection that is made anew when it has broken."""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from everstep_controller.journal.checksums import Chain, checksum, verified
from everstep_controller.journal.port import (
    DAY_NS,
    Announcement,
    ControllerSeen,
    DamagedJournalError,
    HistoryKind,
    HistoryRange,
    HistoryRow,
    JournalAccessError,
    StoredEvent,
    StoredSnapshot,
)
from everstep_controller.journal.postgres.connection import DeadlineConnection, Place, sentence
from everstep_controller.journal.postgres.lease_session import APPLICATION, LeaseRow
from everstep_controller.journal.postgres.pending_writes import unpacked
from everstep_controller.journal.sound_rows import DAMAGED, line_of, sound_history, with_about
from everstep_controller.journal.synchrony import Replication, Standby

logger = logging.getLogger(__name__)

# Reason of a line of the event list that is not as it was written.
_LINE = "id, seq, at_ns, subject, reason, message"
_HISTORY = "kind, key, begin_ns, at_ns, content, checksum"
_ASKED = "kind = %s and begin_ns >= %s and begin_ns < %s"
# Rows of events that are read at once.
_PAGE = 5000
_ALL = 2**62
# Of sums that go on from row to row the last of a day tells the day.
_LAST_OF_DAYS = f"""
select {_HISTORY} from everstep.history join (
    select key, max(begin_ns) as begin_ns from everstep.history where {_ASKED}
    group by key, begin_ns / {DAY_NS}
) as asked using (key, begin_ns) where kind = %s order by key, begin_ns
"""
# What went before is what the first row of a range is compared with.
_BEFORE = f"""
select distinct on (key) {_HISTORY} from everstep.history
where kind = %s and begin_ns < %s and key in (select key from everstep.history where {_ASKED})
order by key, begin_ns desc
"""
_CONTROLLERS = """
select true, told, extract(epoch from clock_timestamp() - taken_at), 0 from everstep.lease
where holder <> '' union all
select false, told, extract(epoch from clock_timestamp() - since),
    extract(epoch from clock_timestamp() - seen_at) from everstep.observer where told <> ''
order by 1 desc, 2
"""
_CHAIN = (
    "select journal, term, holder, beat, writes, head, link, base_seq, base_link, checksum "
    "from everstep.lease"
)


# Users who may not read all statistics see the names alone.
_REPLICATION = """
select case when inet_server_addr() is null then '' else
        host(inet_server_addr()) || ':' || inet_server_port() end,
    current_setting('synchronous_standby_names'), current_setting('synchronous_commit')
"""
_STANDBYS = """
select coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''),
    case when flush_lsn is not null then
        greatest(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn), 0)::bigint end,
    extract(epoch from flush_lag)::float8
from pg_stat_replication order by 1, pid
"""


class PostgresReader:
    """See JournalReader. Raises JournalAccessError where the database does not answer in time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._connection: DeadlineConnection | None = None
        # In the middle of reads that belong together, which another connection would part.
        self._is_pinned = False

    def another_reader(self) -> "PostgresReader":
        """See JournalReader; it connects when it is first asked."""
        return PostgresReader(self.place)

    def close(self) -> None:
        """See JournalReader."""
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Have all reads within see the journal as it is at the first one."""
        with self._errors(), self._connected().transaction():
            self._connected().execute("set transaction isolation level repeatable read, read only")
            # Whoever reads in it writes to a file in between.
            self._connected().execute("set local idle_in_transaction_session_timeout = '60s'")
            self._is_pinned = True
            try:
                yield
            finally:
                self._is_pinned = False

    def last(self) -> tuple[int, int]:
        """See JournalReader."""
        rows = self._ask(
            "(select seq, now_ns from everstep.event order by seq desc limit 1) union all "
            "(select seq, now_ns from everstep.snapshot order by seq desc limit 1) "
            "order by seq desc limit 1"
        )
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def events(self, after: int, through: int | None = None) -> Iterator[StoredEvent]:
        """See JournalReader."""
        chain = self._chain()
        before = self._ask(
            "select link from everstep.event where seq <= %s and seq > %s order by seq desc "
            "limit 1",
            (after, chain.base_seq),
        )
        link = before[0][0] if before else chain.base_link
        last = min(_ALL if through is None else through, chain.seq)
        yield from verified(
            self._pages(after, last), chain, link, after, whole=chain.reaches(through)
        )

    def _pages(self, after: int, through: int) -> Iterator[tuple[StoredEvent, bytes | None]]:
        rows: Sequence[tuple[Any, ...]] = [()]
        while rows:
            rows = self._ask(
                "select seq, now_ns, kind, body, link from everstep.event "
                "where seq > %s and seq <= %s order by seq limit %s",
                (after, through, _PAGE),
            )
            for seq, now_ns, kind, body, link in rows:
                yield StoredEvent(seq, now_ns, kind, unpacked(body)), link
                after = seq

    def replication(self) -> Replication:
        """See JournalReader."""
        server, names, commit = self._ask(_REPLICATION)[0]
        standbys = tuple(Standby(*row) for row in self._ask(_STANDBYS))
        return Replication(server, names, commit, standbys)

    def _chain(self) -> Chain:
        rows = self._ask(_CHAIN)
        row = LeaseRow.of(rows[0]) if rows else None
        if row is None or not row.is_sound:
            raise DamagedJournalError("the row that says where its events end is damaged")
        return row.chain

    def rejections(self) -> dict[int, tuple[int, ...] | None]:
        """See JournalReader."""
        return {
            seq: None if places is None else tuple(map(int, places.split()))
            for seq, _, places in self._sound("rejection", "seq, error, alone")
        }

    def rejection_errors(self) -> dict[int, str]:
        """See JournalReader."""
        return {seq: error for seq, error, _ in self._sound("rejection", "seq, error, alone")}

    def snapshot(self, through: int | None = None) -> StoredSnapshot | None:
        """See JournalReader."""
        rows = self._ask(
            "select seq, now_ns, version, state, checksum from everstep.snapshot "
            "where seq <= %s order by seq desc limit 1",
            (_ALL if through is None else through,),
        )
        if not rows:
            return None
        seq, now_ns, version, state, told = rows[0]
        sound = checksum(seq, now_ns, version, state) == told
        return StoredSnapshot(seq, now_ns, version, _state(state) if sound else b"")

    def oldest_snapshot(self) -> StoredSnapshot | None:
        """See JournalReader."""
        first = self._ask("select min(seq) from everstep.snapshot")[0][0]
        return None if first is None else self.snapshot(int(first))

    def snapshots_taken(self) -> list[tuple[int, int]]:
        """Return after which event and when each snapshot was taken that is kept, oldest first."""
        rows = self._ask("select seq, now_ns from everstep.snapshot order by seq")
        return [(int(seq), int(now_ns)) for seq, now_ns in rows]

    def removed_through(self) -> int:
        """See JournalReader."""
        first = self._ask("select min(seq) from everstep.event where seq > 0")[0][0]
        return self._chain().seq if first is None else int(first) - 1

    def last_decision(self) -> int:
        """See JournalReader."""
        newest = self._sound("decision", "seq, actions", "order by seq desc limit 1")
        return next((int(seq) for seq, _ in newest), 0)

    def decisions(self, after: int) -> dict[int, bytes]:
        """See JournalReader."""
        rows = self._sound("decision", "seq, actions", "where seq > %s", (after,))
        return {seq: unpacked(actions) for seq, actions in rows}

    def marks(self) -> dict[str, int]:
        """See JournalReader."""
        return {outbox: sequence for outbox, _, sequence in self._marks()}

    def outboxes(self) -> Mapping[str, str]:
        """See JournalReader."""
        return {outbox: node for outbox, node, _ in self._marks()}

    def _marks(self) -> Iterator[tuple[Any, ...]]:
        return self._sound("mark", "outbox, node, sequence")

    def last_announcement(self) -> int:
        """See JournalReader."""
        newest = self._sound("announcement", _LINE, "order by id desc limit 1")
        return next((int(row[0]) for row in newest), 0)

    def announcements(self, subject: str, limit: int, since_ns: int = 0) -> list[Announcement]:
        """See JournalReader."""
        where, values = ("where subject = %s", (subject,)) if subject else ("", ())
        rows = self._ask(
            f"select {_LINE}, checksum from everstep.announcement {where} "
            "order by id desc limit %s",
            (*values, limit),
        )
        lines = [line_of(row) for row in reversed(rows)]
        # By number they are in the order of time, and no more than the limit are looked at.
        return [line for line in lines if line.at_ns >= since_ns or line.reason == DAMAGED]

    def first_announcement(self) -> int:
        """See JournalReader."""
        return int(self._ask("select coalesce(min(id), 0) from everstep.announcement")[0][0])

    def announcements_after(self, number: int, limit: int) -> list[Announcement]:
        """See JournalReader."""
        line = ", ".join(f"announcement.{column}" for column in _LINE.split(", "))
        rows = self._ask(
            f"select about, about.checksum, {line}, announcement.checksum "
            "from everstep.announcement left join everstep.about using (id) "
            "where id > %s order by id limit %s",
            (number, limit),
        )
        return [with_about(line_of(tuple(row)), about, told) for about, told, *row in rows]

    def history(self, asked: HistoryRange) -> Iterator[HistoryRow]:
        """See JournalReader."""
        values = (asked.kind.value, asked.since_ns, asked.until_ns)
        statement = f"select {_HISTORY} from everstep.history where {_ASKED}"
        if asked.key:
            rows = self._ask(f"{statement} and key = %s order by begin_ns", (*values, asked.key))
        elif asked.last_of_days:
            rows = self._ask(_LAST_OF_DAYS, (*values, asked.kind.value))
        else:
            rows = self._ask(f"{statement} order by key, begin_ns", values)
        yield from sound_history(rows)

    def history_before(self, asked: HistoryRange) -> dict[str, HistoryRow]:
        """See JournalReader."""
        kind = asked.kind.value
        values = (kind, asked.since_ns, kind, asked.since_ns, asked.until_ns)
        return {row.key: row for row in sound_history(self._ask(_BEFORE, values))}

    def history_keys(self, asked: HistoryRange, limit: int) -> list[str]:
        """See JournalReader."""
        rows = self._ask(
            f"select distinct key from everstep.history where {_ASKED} order by key limit %s",
            (asked.kind.value, asked.since_ns, asked.until_ns, limit),
        )
        return [str(key) for (key,) in rows]

    def history_span(self, kind: HistoryKind) -> tuple[int, int]:
        """See JournalReader."""
        first, last = self._ask(
            "select coalesce(min(begin_ns), 0), coalesce(max(begin_ns), 0) "
            "from everstep.history where kind = %s",
            (kind.value,),
        )[0]
        return int(first), int(last)

    def fact(self, name: str) -> bytes | None:
        """See JournalReader."""
        found = list(self._sound("fact", "name, value", "where name = %s", (name,)))
        return bytes(found[0][1]) if found else None

    def facts(self) -> dict[str, bytes]:
        """See JournalReader."""
        return {name: bytes(value) for name, value in self._sound("fact", "name, value")}

    def controllers(self) -> list[ControllerSeen]:
        """See JournalReader."""
        rows = self._ask(_CONTROLLERS)
        return [
            ControllerSeen(bool(writes), str(told), float(since_s), float(seen_s))
            for writes, told, since_s, seen_s in rows
        ]

    def verify(self) -> None:
        """See JournalWriter: the small tables, of which every row counts."""
        self._chain()
        for table, columns in (
            ("fact", "name, value"),
            ("mark", "outbox, node, sequence"),
            ("rejection", "seq, error, alone"),
        ):
            for _ in self._sound(table, columns):
                pass

    # --- asking ----------------------------------------------------------------------------------

    def _sound(
        self, table: str, columns: str, where: str = "", values: Sequence[object] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows that are as they were written. Raises DamagedJournalError for another one."""
        for *row, told in self._ask(
            f"select {columns}, checksum from everstep.{table} {where}", values
        ):
            if checksum(*row) != told:
                raise DamagedJournalError(
                    f"{columns.partition(',')[0]} {row[0]!r:.80} of its table '{table}' is not as "
                    "it was written"
                )
            yield tuple(row)

    def _ask(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return rows. A connection that was closed meanwhile is made anew, once."""
        with self._errors():
            connection = self._connected()
            try:
                return connection.execute(statement.encode(), values, binary=True).fetchall()
            except psycopg.OperationalError as error:
                if self._is_pinned or not connection.closed or _is_silent(error):
                    raise
                return self._connected().execute(statement.encode(), values, binary=True).fetchall()

    def _connected(self) -> DeadlineConnection:
        if self._connection is None or self._connection.closed:
            self._connection = self.place.connect(f"{APPLICATION} reads")
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise JournalAccessError(
                f"{sentence(error)}: the database has no journal yet; is it the one that the "
                "controller writes? Its first start makes the journal"
            ) from error
        except psycopg.Error as error:
            raise JournalAccessError(sentence(error)) from error


def _is_silent(error: psycopg.Error) -> bool:
    """Return whether a deadline has passed, which a second try would only double."""
    return "has not answered" in str(error)


def _state(packed: bytes) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error:
        return b""
