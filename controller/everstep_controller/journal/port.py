"""Journal port: what the controller reads from and writes to whatever keeps its journal.

Events are durable before they are acknowledged, and the state is folded from them. All else that a
journal keeps is derived (decisions, snapshots, lines, history) or small (marks, facts). Bodies are
bytes to it: what is in them is ``codec.py``'s business.

A write has three outcomes. It is *durable*; it is *refused* (JournalWriteError), and is not in the
journal; or its outcome is *unknown* (JournalUnknownError), as when a connection breaks while the
commit is under way. Then nothing else is written before ``settle`` has found out which it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from everstep_controller.journal.synchrony import Replication

DAY_NS = 86_400_000_000_000


class JournalWriteError(Exception):
    """A write is refused and not in the journal; the message is what the store said of it."""


class JournalUnknownError(Exception):
    """Nobody knows yet whether a write is durable; the message is what the store said of it."""


class JournalLostError(Exception):
    """Another controller writes this journal now, or it is not what this one wrote; a sentence."""


class JournalWentBackError(JournalLostError):
    """The journal lacks what this controller has written there, and acknowledged."""


class DamagedJournalError(Exception):
    """The journal does not say what was written to it; the message names the row."""


class JournalLockedError(Exception):
    """Another controller uses this journal."""


class JournalRefusedError(Exception):
    """The journal is none that this version opens; the message says why, and what to do."""


class JournalAccessError(Exception):
    """The journal cannot be reached or read now; the message is what its store said of it."""


# --- what is in it -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it lies in the journal."""

    seq: int
    now_ns: int
    kind: str
    body: bytes


class Mark(NamedTuple):
    """All records of an outbox up to this sequence are journaled; a step has one of each node."""

    node: str
    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The state after an event, and the version of the code that folded it."""

    seq: int
    now_ns: int
    version: str
    state: bytes


@dataclass(frozen=True, slots=True)
class Announcement:
    """A line of the event list."""

    id: int
    seq: int
    at_ns: int
    subject: str
    reason: str
    message: str
    # What programs are told of it (codec.py); empty for nothing.
    about: bytes = b""


class HistoryKind(StrEnum):
    """Kind of what the history tells: the key and the time of its rows follow from it."""

    # Id of the job, and the begin of the hour: sums of its time from its start on.
    JOB_HOUR = "job-hour"
    # Id of the incident, and when it began.
    INCIDENT = "incident"
    # Name of the node, and the begin of the day, in UTC.
    NODE_DAY = "node-day"
    # "fleet", and the begin of the day: all nodes together.
    FLEET_DAY = "fleet-day"


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Row of the history: one of each kind, key and begin; a later one takes its place."""

    kind: HistoryKind
    key: str
    begin_ns: int
    # Up to when it is told.
    at_ns: int
    # What it tells (history_rows.py).
    content: bytes


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """Which rows of the history are asked for: those that begin from a time on and before one."""

    kind: HistoryKind
    since_ns: int
    until_ns: int
    # Of one key only; "": of all.
    key: str = ""
    # Of each key and day only the last row.
    last_of_days: bool = False


@dataclass(frozen=True, slots=True)
class ControllerSeen:
    """A controller of a journal as the journal's store lists it."""

    # It writes the journal; the others stand by.
    is_writer: bool
    # What it tells of itself (standby/told.py).
    told: str
    # Since when it does that, and how long ago its newest sign of life was, by the store's clock.
    since_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class WriterSeen:
    """What one look at a journal shows of the controller that writes it."""

    # How often the journal has changed hands.
    term: int
    # The process, as people are told of it, and what it tells of itself; empty for nobody.
    writer: str
    told: str
    # Newest event.
    head: int
    # For so long there was no sign of it; 0.0 at each one.
    still_s: float
    # Nobody writes the journal any more: it may be taken.
    is_gone: bool


# By the number of a row: None where it is left out as a whole; of a batch whose events are taken
# alone, the places of those that are left out.
Rejected = Mapping[int, tuple[int, ...] | None]


# --- who has it open -----------------------------------------------------------------------------


class JournalReader(Protocol):
    """One connection that reads; used by the thread that made it. DamagedJournalError of rows."""

    def another_reader(self) -> "JournalReader":
        """Return a connection for another thread, to be closed there."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...

    def last(self) -> tuple[int, int]:
        """Return sequence and time of the newest event or snapshot; zeros if there is none."""
        ...

    def events(self, after: int, through: int | None = None) -> Iterator[StoredEvent]:
        """Yield events in order, those that were rejected among them."""
        ...

    def rejections(self) -> Rejected:
        """Return the events that are left out."""
        ...

    def rejection_errors(self) -> Mapping[int, str]:
        """Return why they are."""
        ...

    def snapshot(self, through: int | None = None) -> StoredSnapshot | None:
        """Return the newest snapshot, or the newest that is not after an event.

        The state of one that is damaged is empty, which nobody can read.
        """
        ...

    def oldest_snapshot(self) -> StoredSnapshot | None:
        """Return the oldest snapshot that is kept."""
        ...

    def removed_through(self) -> int:
        """Return the newest event that is no longer kept, because a snapshot is; 0 for none."""
        ...

    def last_decision(self) -> int:
        """Return the newest event whose actions are recorded; 0 for none."""
        ...

    def decisions(self, after: int) -> Mapping[int, bytes]:
        """Return the recorded actions by event."""
        ...

    def marks(self) -> dict[str, int]:
        """Return how far each outbox is journaled."""
        ...

    def outboxes(self) -> Mapping[str, str]:
        """Return the node of every outbox that has a mark."""
        ...

    def last_announcement(self) -> int:
        """Return the number of the newest line of the event list; 0 for none."""
        ...

    def announcements(self, subject: str, limit: int, since_ns: int = 0) -> list[Announcement]:
        """Return the newest lines of the event list, oldest first, of one subject if named."""
        ...

    def first_announcement(self) -> int:
        """Return the number of the oldest line that is kept; 0 for none."""
        ...

    def announcements_after(self, number: int, limit: int) -> list[Announcement]:
        """Return the lines after a number, oldest first, with what programs are told of them."""
        ...

    def history(self, asked: HistoryRange) -> Iterator[HistoryRow]:
        """Yield rows by key, and of each in the order of time; those that are damaged are not."""
        ...

    def history_before(self, asked: HistoryRange) -> Mapping[str, HistoryRow]:
        """Return by key the last row before a range, of those that have one in it."""
        ...

    def history_keys(self, asked: HistoryRange, limit: int) -> list[str]:
        """Return some of the keys that have rows in a range, in order."""
        ...

    def history_span(self, kind: HistoryKind) -> tuple[int, int]:
        """Return when the first and the last row of a kind begin; zeros if there is none."""
        ...

    def fact(self, name: str) -> bytes | None:
        """Return a kept value."""
        ...

    def facts(self) -> Mapping[str, bytes]:
        """Return all kept values by their names."""
        ...

    def controllers(self) -> Sequence[ControllerSeen]:
        """Return the controllers that the store lists; none where only one can have it open."""
        ...

    def replication(self) -> Replication | None:
        """Return how commits reach other servers; None for a journal that is a file."""
        ...


class JournalWriter(JournalReader, Protocol):
    """One connection that writes too; each write is in a transaction."""

    @property
    def beat_s(self) -> float | None:
        """Return how often to write, if only an empty transaction; None where nobody waits."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make what is written in it durable, or forget all of it.

        Raises JournalWriteError, JournalUnknownError and JournalLostError.
        """
        ...

    def settle(self) -> bool:
        """Return whether the transaction whose outcome was unknown is durable, now and for ever.

        Raises JournalUnknownError while nobody can say, and JournalLostError.
        """
        ...

    def verify(self) -> None:
        """Look for damage where a start reads. Raises DamagedJournalError."""
        ...

    def append(self, events: Iterable[StoredEvent], marks: Iterable[Mark]) -> None:
        """Add events, and how far their outboxes are journaled with them."""
        ...

    def unmark(self, mark: Mark) -> None:
        """Enter that records of an outbox after this sequence were not taken after all."""
        ...

    def record(self, seq: int, actions: bytes) -> None:
        """Write down what an event led to."""
        ...

    def reject(self, seq: int, error: str, left_out: Iterable[int] | None = None) -> None:
        """Mark an event that the core cannot take: folding leaves it out.

        Of a batch, folding takes each event alone, without those at the places ``left_out``.
        """
        ...

    def announce(self, announcements: Iterable[Announcement]) -> None:
        """Add lines to the event list."""
        ...

    def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Keep the state, so that folding starts from it."""
        ...

    def save_history(self, rows: Iterable[HistoryRow]) -> None:
        """Write rows down, each in the place of the one of its kind, key and time.

        An incident has one, whenever it is found to have begun.
        """
        ...

    def set_fact(self, name: str, value: bytes) -> None:
        """Keep a value that is no event, such as a secret."""
        ...

    def prune_snapshots(self, events_before_ns: int) -> int:
        """Delete the snapshots that nobody needs; return how many."""
        ...

    def compact(self, events_before_ns: int, announcements_before_ns: int) -> int:
        """Delete what is older, as far as snapshots stand for it; return the deleted events.

        The history stays.
        """
        ...

    def forget_history(self, before_ns: int) -> None:
        """Delete the history of before a time; of sums that go on the last one before is kept."""
        ...

    def forget_outboxes(self, replaced: Iterable[str]) -> None:
        """Delete the marks of outboxes that their nodes have replaced."""
        ...

    def probe(self) -> None:
        """Write and remove what needs space. Raises what ``transaction`` does."""
        ...


class JournalCandidate(Protocol):
    """Controller that stands by: it looks at a journal that another one writes, and succeeds it.

    It is used by one thread.
    """

    def look(self, told: str) -> WriterSeen:
        """Look at who writes, and tell of oneself. Raises JournalAccessError, and what opens."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until something new is in the journal, or for so long."""
        ...

    def take(self, told: str) -> bool:
        """Become the writer, as after ``lock``; False where another one was faster.

        Raises JournalAccessError, and what opening a journal does.
        """
        ...


class JournalBackend(Protocol):
    """Place of one journal, and how it is opened there."""

    def lock(self) -> AbstractContextManager[object]:
        """Keep every other controller out. Raises JournalLockedError."""
        ...

    def standing_by(self) -> AbstractContextManager[JournalCandidate]:
        """Stand by; within it the journal may become this process's own, until the end.

        Raises JournalRefusedError where the store knows no standby.
        """
        ...

    def give_back(self) -> None:
        """Let another controller have it before ``lock`` or ``standing_by`` ends, without a writer.

        Nothing where only one process can ever have it open.
        """
        ...

    def tell(self, told: str) -> None:
        """Have others learn what this controller tells of itself, from the next lock on."""
        ...

    def verify(self) -> None:
        """Look before it is opened. Raises DamagedJournalError, JournalRefusedError."""
        ...

    def open_writer(self) -> JournalWriter:
        """Open it, made or migrated where that is due. Raises JournalRefusedError, too."""
        ...

    def open_reader(self) -> JournalReader:
        """Open one that exists."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Raise what its store raises within as JournalAccessError or DamagedJournalError."""
        ...

    def damage_advice(self) -> str:
        """Return what to do about one that is damaged, before 'everstep-controller recover'."""
        ...

    def copy_problem(self, target: Path) -> str:
        """Return why it may not be copied to a file, and what to do; empty where it may."""
        ...

    def copy_to(self, target: Path) -> int:
        """Copy it, also while it is written, and read the copy; return the newest event of that.

        The copy is one file. Raises DamagedJournalError, OSError, and what ``errors`` turns.
        """
        ...
