"""Following a journal: what a standby reads of it at once, and the state that it folds."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from everstep_controller.journal.lease import GONE_AFTER_OUTAGE_NS, LOOK_S
from everstep_controller.journal.port import (
    Announcement,
    JournalReader,
    JournalWentBackError,
    Rejected,
    StoredEvent,
    WriterSeen,
)
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.fold import Fold, TakenEvent
from everstep_controller.runtime.timeline import alive_ns

# Lines of the event list that are read at once.
_LINES_MAX = 1000
# Events that are folded at once, before others of the loop have their turn.
EVENTS_MAX = 100


@dataclass(frozen=True, slots=True)
class JournalNews:
    """What has come to a journal since it was read last; the writer as of the newest look."""

    events: Sequence[StoredEvent] = ()
    writer: WriterSeen | None = None
    # Of a look alone:
    rejected: Rejected = field(default_factory=dict)
    # Newest event whose decision is recorded.
    recorded: int = 0
    # When the writer has said last that it is alive.
    alive_ns: int = 0
    lines: Sequence[Announcement] = ()


def read_events(reader: JournalReader, after: int) -> JournalNews:
    """Return the events after one; some of them where there are many."""
    return JournalNews(list(reader.events(after, after + EVENTS_MAX)))


def read_at_look(
    reader: JournalReader, writer: WriterSeen, after: int, after_line: int
) -> JournalNews:
    """Return all that a look at the writer is told with."""
    return JournalNews(
        events=read_events(reader, after).events,
        writer=writer,
        rejected=reader.rejections(),
        recorded=reader.last_decision(),
        alive_ns=alive_ns(reader),
        lines=reader.announcements_after(after_line, _LINES_MAX),
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """What a standby hands over to the controller that it becomes."""

    # How far the timeline is from the boot clock of this machine; None where it saw nobody.
    offset_ns: int | None
    # Where the state was folded by this version, and can be gone on from.
    fold: Fold | None = None
    # What it has decided and nobody may have recorded.
    unrecorded: Sequence[TakenEvent] = ()


class FollowedJournal:
    """State of a journal that another controller writes; used on the event loop."""

    def __init__(
        self,
        fold: Fold,
        clock: ControllerClock,
        after_line: int,
        unrecorded: Iterable[TakenEvent] = (),
    ) -> None:
        self.fold = fold
        self.clock = clock
        # The newest event that was read: it may have been one that is left out.
        self.read_through = fold.seq
        self.after_line = after_line
        self.writer: WriterSeen | None = None
        self._unrecorded = deque(unrecorded)
        # When it had all that was in the journal, in the machine's boot time.
        self._caught_up_ns = clock.boot_ns()
        self._is_behind = True
        self._highest_term = 0
        # Since when the journal lacks what was read of it.
        self._back_since_ns: int | None = None

    def take(self, news: JournalNews) -> None:
        """Fold what has come.

        Raises JournalWentBackError, after which this state is no journal's; UnreadableError and
        DamagedJournalError.
        """
        if news.writer is not None:
            self._hear_look(news, news.writer)
        for taken in self.fold.follow(news.events):
            if taken.actions or taken.rejected or taken.apart is not None:
                self._unrecorded.append(taken)
        if news.events:
            self.read_through = news.events[-1].seq
            self.clock.reach(news.events[-1].now_ns)
        while self._unrecorded and self._unrecorded[0].seq <= news.recorded:
            self._unrecorded.popleft()
        self._is_behind = len(news.events) == EVENTS_MAX
        if not self._is_behind:
            self._caught_up_ns = self.clock.boot_ns()

    def _hear_look(self, news: JournalNews, writer: WriterSeen) -> None:
        if self._has_gone_back(writer):
            # Nobody takes such a journal over.
            self.writer = replace(writer, is_gone=False)
            return
        self.writer = writer
        self.fold.hear_rejections(news.rejected)
        if news.alive_ns:
            self.clock.reach(news.alive_ns)
        if news.lines:
            self.after_line = news.lines[-1].id

    def _has_gone_back(self, writer: WriterSeen) -> bool:
        """Return whether the journal lacks what was read of it; raises where that stays so.

        A new leader of the database that was behind is given the rest again by a writer that lives
        (postgres/recent_writes.py), within the time in which it finds the database.
        """
        term = self._highest_term
        if writer.head >= self.read_through and writer.term >= term:
            self._back_since_ns, self._highest_term = None, writer.term
            return False
        now_ns = self.clock.boot_ns()
        if self._back_since_ns is None:
            self._back_since_ns = now_ns
        if now_ns - self._back_since_ns < GONE_AFTER_OUTAGE_NS:
            return True
        raise JournalWentBackError(
            f"the database goes back to event {writer.head} of term {writer.term}, and this "
            f"standby has read up to event {self.read_through} of term {term}: it was restored "
            "from an older copy, or its new leader lacks what the old one had. Start "
            "'everstep-controller recover', which rebuilds from the agents what it does not have"
        )

    @property
    def may_take(self) -> bool:
        """Return whether nobody writes the journal any more, and this state is its own."""
        return self.writer is not None and self.writer.is_gone

    @property
    def is_behind(self) -> bool:
        """Return whether more is in the journal than could be read at once."""
        return self._is_behind

    @property
    def behind_events(self) -> int:
        """Return how many events of the journal are not folded yet, as of the newest look."""
        return max(0, self.writer.head - self.read_through) if self.writer is not None else 0

    def behind_s(self) -> float:
        """Return for how many seconds this state has not been that of the journal.

        The time between two looks is none: nobody knows then that something is lacking.
        """
        return max(0.0, (self.clock.boot_ns() - self._caught_up_ns) / 1e9 - LOOK_S)

    def unrecorded(self) -> list[TakenEvent]:
        """Return what was decided of which nobody is known to have recorded it."""
        return list(self._unrecorded)
