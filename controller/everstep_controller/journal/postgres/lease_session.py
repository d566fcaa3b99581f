"""Lease session: the connection by which the one writer of a journal writes, and its lease.

The row of the lease is moved on by each statement that writes, in that statement. A writer that is
no longer the one moves nothing, and writes no row.
"""

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import psycopg

from everstep_controller.journal.checksums import Chain, checksum
from everstep_controller.journal.lease import (
    LOOK_S,
    Holder,
    LeaseSeen,
    Look,
    Observation,
    Process,
    observe,
    refusal,
)
from everstep_controller.journal.port import (
    DamagedJournalError,
    JournalAccessError,
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
    JournalUnknownError,
    JournalWentBackError,
    JournalWriteError,
)
from everstep_controller.journal.postgres.connection import (
    DeadlineConnection,
    Place,
    note_warnings,
    sentence,
)
from everstep_controller.journal.postgres.pending_writes import PendingWrites
from everstep_controller.journal.postgres.recent_writes import (
    Position,
    RecentWrite,
    RecentWrites,
)
from everstep_controller.journal.postgres.schema import migrate

logger = logging.getLogger(__name__)

APPLICATION = "everstep-controller"
# Backends of a holder that is gone end within milliseconds, unless their machine stands still.
_END_MS = 2000
_ROW = "journal, term, holder, beat, writes, head, link, base_seq, base_link, checksum"
_READ = f"select {_ROW} from everstep.lease"
# Standbys listen here for new events, and for a lease that was given back.
CHANNEL = "everstep"
# With a write of its own, so that who cannot write takes nobody's lease. The id of a holder is the
# first of what its row tells (_told).
_LOOK = f"""
with looked as (
    insert into everstep.observer (id, looks, told) values (%s, 1, %s)
    on conflict (id) do update set
        looks = everstep.observer.looks + 1, told = excluded.told, seen_at = clock_timestamp()
    returning 1
) select {_ROW}, told, exists (
    select from pg_stat_activity where datname = current_database()
    and application_name = '{APPLICATION} ' || substring(holder from '^\\["([0-9a-f]+)"')
) from everstep.lease, looked
"""
# A server that was started just now had an outage before, for its writer as well.
_IS_NEW = "select clock_timestamp() - pg_postmaster_start_time() < interval '15 s'"
_TAKE = f"""
update everstep.lease set
    term = term + 1, holder = %s, beat = beat + 1, told = %s, taken_at = clock_timestamp()
where journal = %s and term = %s and beat = %s returning {_ROW}
"""
_END_BACKENDS = """
select count(*) filter (where pg_terminate_backend(pid, %s)), count(*) from pg_stat_activity
where application_name = %s and datname = current_database() and pid <> pg_backend_pid()
"""
_FENCE = """
update everstep.lease set beat = beat + 1, writes = writes + 1,
    head = %s, link = %s, base_seq = %s, base_link = %s, checksum = %s
where journal = %s and term = %s and holder = %s and head = %s and beat = %s and writes = %s
returning 1
"""
# Locks the row, so it waits for a statement that is under way; and one that comes later, whose
# connection was given up, finds another beat than it expects.
_SETTLE = f"""
update everstep.lease set beat = beat + 1 where journal = %s and term = %s and holder = %s
returning {_ROW}
"""
# A server that was a standby, or was restored from its log, has another one than before.
_TIMELINE = "select substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
_RELEASE = f"""
with released as (
    update everstep.lease set holder = '', beat = beat + 1
    where journal = %s and term = %s and holder = %s returning 1
) select pg_notify('{CHANNEL}', '') from released
"""
_FORGET = "delete from everstep.observer where id = %s or seen_at < now() - interval '1 day'"
# 22: values that no table takes; 23: an event whose number is taken. A mistake of the program.
_MISTAKES = ("22", "23")
# Half of what a column takes: no controller counts so far in the age of the universe.
_COUNT_MAX = 2**62
_READ_ONLY = "25006"


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Row of the lease."""

    journal: str
    term: int
    holder: str
    beat: int
    writes: int
    chain: Chain
    is_sound: bool

    @classmethod
    def of(cls, row: tuple[object, ...]) -> "LeaseRow":
        """Return it from what was read."""
        journal, term, holder, beat, writes, head, link, base_seq, base_link, told = row
        chain = Chain(_int(head), _bytes(link), _int(base_seq), _bytes(base_link))
        sound = checksum(chain.seq, chain.link, chain.base_seq, chain.base_link) == told
        numbers = _int(term), str(holder), _int(beat), _int(writes)
        return cls(str(journal), *numbers, chain, sound)

    @property
    def position(self) -> Position:
        """Return how far the journal goes."""
        return Position(self.writes, self.chain)


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Row of a lease at one look, what its holder tells of itself, and whether it is connected."""

    row: LeaseRow
    told: str
    is_connected: bool

    def seen(self) -> LeaseSeen:
        """Return it as an observer judges it."""
        row = self.row
        return LeaseSeen(row.term, holder_of(row.holder), row.beat, self.is_connected)


@dataclass(slots=True)
class _Unknown:
    """What a transaction wrote of which nobody knows whether it is durable."""

    writes: PendingWrites
    chain: Chain


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Whatever a process knows of itself and its machine, and its clock."""

    process: Process
    monotonic_ns: Callable[[], int]
    sleep_s: Callable[[float], None]
    # Whether a process of this machine lives; None for one of another machine.
    lives: Callable[[Process], bool | None]


class LeaseSession:
    """Holder of the lease of one journal; used by one thread at a time, which hands it over."""

    def __init__(self, place: Place, around: Surroundings, told: str = "") -> None:
        self._place = place
        self._around = around
        # What this controller tells others of itself.
        self.told = told
        self._id = uuid.uuid4().hex[:16]
        self._holder = _told(Holder(self._id, around.process))
        self._connection: DeadlineConnection | None = None
        self._warnings: list[str] = []
        self._row: LeaseRow | None = None
        # The database may list it among those that look on.
        self._is_listed = False
        self._unknown: _Unknown | None = None
        self._recent = RecentWrites()
        # Of the server that has all that was written, by that connection; "": not known.
        self._timeline = ""
        self._timeline_of: DeadlineConnection | None = None
        # By outbox: its node, and how far it is journaled.
        self.marks: dict[str, tuple[str, int]] = {}

    @property
    def connection(self) -> DeadlineConnection:
        """Return the connection, made anew where it is closed. Raises JournalAccessError."""
        if self._connection is None or self._connection.closed:
            self._connection = self._place.connect(application_of(self._id))
            note_warnings(self._connection, self._warnings.append)
        return self._connection

    @property
    def chain(self) -> Chain:
        """Return how far the journal goes."""
        return self._held.chain

    @property
    def _held(self) -> LeaseRow:
        if self._row is None:
            raise RuntimeError("the journal is written without its lease")
        return self._row

    # --- taking and giving back ------------------------------------------------------------------

    def take(self) -> None:
        """Make or migrate the journal and take its lease. JournalLockedError and others."""
        migrate(self.connection)
        try:
            taken = self.take_from(self._wait_until_gone())
        except psycopg.Error as error:
            raise JournalAccessError(sentence(error)) from error
        if not taken:
            raise JournalLockedError(
                "another controller has taken the lease of this journal just now; stop it "
                "first, or configure another journal"
            )

    def take_from(self, looked: LookedAt) -> bool:
        """Take the lease of a holder that is gone; False where it has changed since that look.

        Raises psycopg.Error, JournalRefusedError, DamagedJournalError and JournalAccessError.
        """
        seen = looked.row
        self._end_backends(holder_of(seen.holder))
        values = (self._holder, self.told, seen.journal, seen.term, seen.beat)
        try:
            row = self.connection.execute(_TAKE, values).fetchone()
        except psycopg.errors.NumericValueOutOfRange as error:
            raise JournalRefusedError(_changed_counts(sentence(error))) from error
        if row is None:
            return False
        self.connection.execute(_FORGET, (self._id,))
        self._is_listed = False
        self._row = LeaseRow.of(row)
        self._read_marks()
        self._learn_timeline()
        if max(self._held.term, self._held.beat, self._held.writes) > _COUNT_MAX:
            raise JournalRefusedError(_changed_counts("no controller counts so far"))
        if not self._held.is_sound:
            raise DamagedJournalError("the row that says where its events end is damaged")
        return True

    def forget_look(self) -> None:
        """Have this controller no longer listed among those that look on."""
        if not self._is_listed:
            return
        try:
            self.connection.execute(_FORGET, (self._id,))
        except (psycopg.Error, JournalAccessError) as error:
            logger.info("this controller is listed for a while yet: %s", error)

    def _wait_until_gone(self) -> LookedAt:
        """Return the lease of a holder that is gone. Raises JournalLockedError where one lives."""
        looked = self.look()
        first = looked.seen()
        if self.has_ended_here(first):
            return looked
        observation = observe(self.before_first_look(), Look(self._around.monotonic_ns(), first))
        while not observation.is_gone:
            self._around.sleep_s(LOOK_S)
            looked = self.look()
            before, now = observation.last.seen, looked.seen()
            observation = observe(observation, Look(self._around.monotonic_ns(), now))
            if before is not None and (before.term, before.beat) != (now.term, now.beat):
                raise JournalLockedError(refusal(observation))
        return looked

    def has_ended_here(self, seen: LeaseSeen) -> bool:
        """Return whether the holder was a process of this machine that has ended."""
        if seen.holder is None or self._around.lives(seen.holder.process) is not False:
            return False
        logger.info("the journal was written by %s, which has ended", seen.holder)
        return True

    def before_first_look(self) -> Observation | None:
        """Return what is known before the first look: whether the server was started just now."""
        found = self.connection.execute(_IS_NEW).fetchone()
        outage = Look(self._around.monotonic_ns(), None)
        return observe(None, outage) if found is None or found[0] else None

    def look(self) -> LookedAt:
        """Look at the lease. Raises psycopg.Error and JournalAccessError."""
        connection = self.connection
        self._is_listed = True
        row = connection.execute(_LOOK, (self._id, self.told)).fetchone()
        if row is None:
            raise JournalAccessError("the row of the lease is gone")
        *lease, told, is_connected = row
        return LookedAt(LeaseRow.of(tuple(lease)), str(told), bool(is_connected))

    def _end_backends(self, holder: Holder | None) -> None:
        """End what a holder that is gone may have left in the database."""
        if holder is None:
            return
        values = (_END_MS, application_of(holder.id))
        found = self.connection.execute(_END_BACKENDS, values).fetchone()
        ended, there = (0, 0) if found is None else found
        logger.info(
            "the lease of %s is taken; of %d connections that it had left, %d were ended",
            holder,
            there,
            ended,
        )

    def _read_marks(self) -> None:
        rows = self.connection.execute("select outbox, node, sequence, checksum from everstep.mark")
        for outbox, node, sequence, told in rows:
            if checksum(outbox, node, sequence) != told:
                raise DamagedJournalError(
                    f"outbox {outbox!r:.80} of its table 'mark' is not as it was written"
                )
            self.marks[outbox] = node, sequence

    def release(self) -> None:
        """Give the lease back, so that the next controller need not wait, and disconnect."""
        row, self._row = self._row, None
        try:
            if row is not None:
                self.connection.execute(_RELEASE, (row.journal, row.term, self._holder))
        except (psycopg.Error, JournalAccessError) as error:
            logger.info("the lease is not given back: %s", error)
        self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; the next use makes another one."""
        if self._connection is not None:
            self._connection.close()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, writes: PendingWrites) -> None:
        """Make all of it durable. JournalWriteError, JournalUnknownError, JournalLostError."""
        if self._unknown is not None:
            self._settle_before()
        chain = self._chain_after(writes)
        self._warnings.clear()
        self._unknown = _Unknown(writes, chain)
        try:
            found = self._send(self._held, writes, chain)
        except JournalAccessError as error:
            raise JournalUnknownError(str(error)) from error
        except psycopg.Error as error:
            self._raise_failure(error)
        if self._warnings:
            # "canceling wait for synchronous replication": here, and perhaps nowhere else.
            raise JournalUnknownError("; ".join(self._warnings))
        if not found:
            self._raise_lost()
        self._take_over(self._unknown, beats=1)

    def _send(self, before: LeaseRow, writes: PendingWrites, chain: Chain) -> int:
        """Write where the row is as before; return 1, or 0 where it is another. psycopg.Error."""
        known = (before.chain.seq, before.beat, before.writes)
        parts = list(writes.parts())
        named = ", ".join(f"part_{at} as ({text})" for at, (text, _) in enumerate(parts))
        # Who follows the journal is woken by events alone: a beat tells nothing new.
        answer = f"pg_notify('{CHANNEL}', '')" if writes.events else ""
        first = f"with fence as ({_FENCE}){', ' * bool(parts)}"
        statement = f"{first}{named} select {answer} from fence"
        values = [*_values(chain), before.journal, before.term, self._holder, *known]
        values += [value for _, told in parts for value in told]
        return self.connection.execute(statement.encode(), values).rowcount

    def _settle_before(self) -> None:
        """Find out what a beat has become that nobody else asks for. Raises JournalWriteError."""
        try:
            self.settle()
        except JournalUnknownError as error:
            raise JournalWriteError(str(error)) from error

    def _chain_after(self, writes: PendingWrites) -> Chain:
        chain = self._held.chain
        if writes.base is not None:
            chain = replace(chain, base_seq=writes.base[0], base_link=writes.base[1])
        if writes.events:
            last, link = writes.events[-1]
            chain = replace(chain, seq=last.seq, link=link)
        return chain

    def _raise_failure(self, error: psycopg.Error) -> NoReturn:
        """Raise what an error means for what was to be written."""
        code = error.sqlstate or ""
        is_certain = code and error.diag.severity_nonlocalized == "ERROR"
        if not is_certain or self._connection is None or self._connection.closed:
            raise JournalUnknownError(sentence(error)) from error
        self._unknown = None
        if code == _READ_ONLY:
            # A server that lost its leadership: another one may take writes.
            self._connection.close()
        if code[:2] in _MISTAKES:
            raise error
        raise JournalWriteError(sentence(error)) from error

    def _raise_lost(self) -> NoReturn:
        """Raise why a statement moved nothing on."""
        held, now = self._held, self._read_row()
        mine = (held.journal, held.term, self._holder, held.chain.seq, held.writes)
        if (now.journal, now.term, now.holder, now.chain.seq, now.writes) == mine:
            # A question of ours was answered to nobody, and has moved the beat.
            raise JournalUnknownError("the lease was moved by a connection that was given up")
        if self._missing_there(now):
            raise JournalUnknownError("the new leader of the database lacks the newest commits")
        raise _lost(held, now)

    def _read_row(self) -> LeaseRow:
        try:
            row = self.connection.execute(_READ).fetchone()
        except psycopg.Error as error:
            raise JournalUnknownError(sentence(error)) from error
        if row is None:
            # A restore shows it so for a moment, and what it brings may lack the newest events.
            raise JournalWentBackError(
                "the row that says who writes the journal is gone from the database: it is being "
                "restored from a copy, or somebody has emptied it. When it is whole again, start "
                "'everstep-controller recover', which rebuilds from the agents what it lacks"
            )
        return LeaseRow.of(row)

    def settle(self) -> bool:
        """See JournalWriter."""
        held, unknown = self._held, self._unknown
        if self._connection is not None:
            self._connection.close()
        self._warnings.clear()
        try:
            told = (held.journal, held.term, self._holder)
            row = self.connection.execute(_SETTLE, told).fetchone()
        except psycopg.errors.NumericValueOutOfRange as error:
            raise JournalLostError(_changed_counts(sentence(error))) from error
        except (psycopg.Error, JournalAccessError) as error:
            why = sentence(error) if isinstance(error, psycopg.Error) else str(error)
            raise JournalUnknownError(why) from error
        if self._warnings:
            raise JournalUnknownError("; ".join(self._warnings))
        if row is None:
            raise _lost(held, self._read_row())
        now = LeaseRow.of(row)
        self._unknown = None
        self._row = replace(held, beat=now.beat)
        if unknown and (now.writes, now.chain) == (held.writes + 1, unknown.chain):
            self._take_over(unknown, beats=0)
            return True
        self._bring_to(now)
        return False

    def _bring_to(self, now: LeaseRow) -> None:
        """Have the journal go as far as this writer has written. Raises JournalLostError."""
        held = self._held
        if (now.writes, now.chain.seq) == (held.writes, held.chain.seq):
            self._learn_timeline()
        elif missing := self._missing_there(now):
            self._write_again(now, missing)
            self._learn_timeline()
        else:
            raise _lost(held, now)

    def _missing_there(self, now: LeaseRow) -> Sequence[RecentWrite]:
        """Return what a new leader lacks of this writer's; () where it is no such one.

        Rows that were restored one by one, or changed by hand, are on the old time line: nobody
        knows what else was done to them.
        """
        held, timeline = self._held, self._read_timeline()
        is_mine = (now.journal, now.term, now.holder) == (held.journal, held.term, self._holder)
        if not (is_mine and now.is_sound and "" != timeline > self._timeline != ""):
            return ()
        return self._recent.missing(now.position)

    def _learn_timeline(self) -> None:
        """Remember the time line of the server, which has all that was written."""
        self._timeline, self._timeline_of = self._read_timeline(), self._connection

    def _read_timeline(self) -> str:
        """Return the time line of the server; "" where it does not say."""
        try:
            found = self.connection.execute(_TIMELINE).fetchone()
        except (psycopg.Error, JournalAccessError):
            return ""
        return str(found[0]) if found else ""

    def _write_again(self, now: LeaseRow, missing: Sequence[RecentWrite]) -> None:
        """Bring a new leader what it lacks, one by one. Raises JournalUnknownError in between."""
        before = now
        for one in missing:
            self._warnings.clear()
            try:
                found = self._send(before, one.written, one.after.chain)
            except (psycopg.Error, JournalAccessError) as error:
                why = sentence(error) if isinstance(error, psycopg.Error) else str(error)
                raise JournalUnknownError(why) from error
            if self._warnings or not found:
                raise JournalUnknownError("; ".join(self._warnings) or "the lease was moved")
            before = replace(
                before, beat=before.beat + 1, writes=one.after.writes, chain=one.after.chain
            )
        self._row = replace(self._held, beat=before.beat)
        logger.warning(
            "the new leader of the database lacked %d commits of this controller, from event %d "
            "on, and has been given them again: its replication is not synchronous",
            len(missing),
            now.chain.seq + 1,
        )

    def _take_over(self, written: _Unknown, beats: int) -> None:
        """Know from now on what is durable."""
        held = self._held
        self._unknown = None
        self._row = replace(
            held, beat=held.beat + beats, writes=held.writes + 1, chain=written.chain
        )
        if self._connection is not self._timeline_of:
            self._learn_timeline()
        now_ns = self._around.monotonic_ns()
        self._recent.note(held.position, self._row.position, written.writes, now_ns)
        self.marks |= written.writes.marks
        for outbox in written.writes.forgotten:
            self.marks.pop(outbox, None)


def application_of(holder_id: str) -> str:
    """Return the name under which a holder's connections are listed by the database."""
    return f"{APPLICATION} {holder_id}"


def holder_of(told: str) -> Holder | None:
    """Return who holds a lease, from its row; somebody unknown where a hand has written there."""
    if not told:
        return None
    try:
        holder_id, host, place, pid, started = json.loads(told)
        holder = Holder(str(holder_id), Process(str(host), str(place), int(pid), int(started)))
    except (ValueError, TypeError, OverflowError, RecursionError):
        holder = None
    # Its name goes into logs and into a question to the database, which takes no NUL.
    if holder is None or not f"{holder}{holder.id}".isprintable():
        return Holder(told, Process(f"{told!r:.60}", "", 0, 0))
    return holder


def _told(holder: Holder) -> str:
    process = holder.process
    return json.dumps([holder.id, process.host, process.place, process.pid, process.started])


def _lost(held: LeaseRow, now: LeaseRow) -> JournalLostError:
    """Return why a journal may not be written any more."""
    if now.journal != held.journal:
        return JournalLostError(
            "the database is another one now, with another journal: journal in controller.toml, "
            "or the address that it names, leads to another cluster's"
        )
    # Fewer writes may be a hand's as well, but then nothing tells that from an older copy.
    is_same = (now.term, now.holder, now.chain) == (held.term, held.holder, held.chain)
    if is_same and now.writes > held.writes:
        return JournalLostError(
            _changed_counts(f"it says {now.writes} writes, and there were {held.writes}")
        )
    if (now.term, now.writes, now.chain.seq) < (held.term, held.writes, held.chain.seq):
        return JournalWentBackError(
            f"the database goes back to event {now.chain.seq} of term {now.term} (write "
            f"{now.writes}), and this controller has written up to event {held.chain.seq} of term "
            f"{held.term} (write {held.writes}): it was restored from an older copy, or its new "
            "leader lacks what the old one had. Start 'everstep-controller recover', which "
            "rebuilds from the agents what it does not have"
        )
    if now.term != held.term:
        taker = holder_of(now.holder) or "somebody"
        return JournalLostError(
            f"{taker} has taken the journal's lease (term {now.term}; "
            f"this controller's was {held.term}), and this controller may act no more"
        )
    return JournalLostError(
        f"somebody has changed the row of the journal's lease: it says holder {now.holder!r:.100} "
        f"and event {now.chain.seq}, and this controller has written up to event {held.chain.seq}; "
        "nobody but controllers may write there"
    )


def _changed_counts(why: str) -> str:
    return (
        f"somebody has changed the counts in the row of the journal's lease: {why}. Nobody but "
        "controllers may write there; with all of them stopped, 'update everstep.lease set term = "
        "1, beat = 0, writes = 0' in the database puts it right, and nothing of the journal is lost"
    )


def _values(chain: Chain) -> tuple[object, ...]:
    told = (chain.seq, chain.link, chain.base_seq, chain.base_link)
    return (*told, checksum(*told))


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise DamagedJournalError(f"the row of its lease has {value!r:.40} for a number")
    return value


def _bytes(value: object) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else b""
