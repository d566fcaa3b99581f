"""Following a journal: what a standby reads of it at once, and the state that it folds."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from everstep_controller.journal.port import (
    Announcement,
    JournalReader,
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
EVENTS_MAX = 500


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

    def take(self, news: JournalNews) -> None:
        """Fold what has come. Raises UnreadableError and DamagedJournalError."""
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
        self.writer = writer
        self.fold.hear_rejections(news.rejected)
        if news.alive_ns:
            self.clock.reach(news.alive_ns)
        if news.lines:
            self.after_line = news.lines[-1].id

    @property
    def is_behind(self) -> bool:
        """Return whether more is in the journal than could be read at once."""
        return self._is_behind

    @property
    def behind_events(self) -> int:
        """Return how many events of the journal are not folded yet, as of the newest look."""
        return max(0, self.writer.head - self.read_through) if self.writer is not None else 0

    def behind_s(self) -> float:
        """Return for how many seconds this state has not been that of the journal."""
        return max(0.0, (self.clock.boot_ns() - self._caught_up_ns) / 1e9)

    def unrecorded(self) -> list[TakenEvent]:
        """Return what was decided of which nobody is known to have recorded it."""
        return list(self._unrecorded)
