"""Runtime: the shell around the core; each event is journaled, decided, acted on, then answered."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from everstep_common.judging.moment import Moment
from everstep_controller.core.actions import Action, Announce
from everstep_controller.core.events import Event, EventRejected, JournaledEvent
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.journal.codec import encode, encode_about, encode_actions, kind_of
from everstep_controller.journal.group_commit import JournalEntry, JournalFull, Write
from everstep_controller.journal.port import Announcement, JournalWriter, Mark
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.event_batches import EventBatches, SubmittedEvent, row_of
from everstep_controller.runtime.fold import Fold, TakenEvent

logger = logging.getLogger(__name__)


class _Pending(JournalEntry):
    """A row of events that waits for the journal, and who waits for it."""

    __slots__ = ("event", "submitted")

    event: JournaledEvent
    submitted: Sequence[SubmittedEvent]


class _PendingMarks(JournalEntry):
    """Marks of outboxes that no event carries, and who waits for them to be journaled."""

    __slots__ = ("future",)

    future: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class Journaling:
    """Interface of the journal thread, as the runtime uses it."""

    append: Callable[[JournalEntry], None]
    write: Callable[[Write], None]


Listener = Callable[[TakenEvent], None]


class Runtime:
    """Owner of the core: journals each event, handles it, acts. It runs on the event loop."""

    def __init__(self, fold: Fold, clock: ControllerClock) -> None:
        self._fold = fold
        self._clock = clock
        self._act: Callable[[Sequence[Action]], None] = lambda _: None
        self._journal: Journaling | None = None
        self._listeners: list[Listener] = []
        self._announcement_listeners: list[Callable[[Announcement], None]] = []
        self._postponed: list[Event] = []
        self._batches = EventBatches(self._append_row)
        self._next_announcement = 1
        self._full = False
        self.events_taken = 0
        self.events_rejected = 0

    @property
    def state(self) -> State:
        """Return the core's state: read it, never change it."""
        return self._fold.state

    @property
    def seq(self) -> int:
        """Return the number of the newest event that was taken."""
        return self._fold.seq

    def now_ns(self) -> int:
        """Return the controller's time."""
        return self._clock.now_ns()

    def hear_clock(self, node: str, moment: Moment) -> int:
        """Correct the time by a node's clocks, after a reboot of this machine; return by how much.

        Whatever waits takes that for a stall of the controller, which it was.
        """
        return self._clock.hear(node, moment)

    def listen(self, listener: Listener) -> None:
        """Have ``listener`` called after every event, before its sender is answered."""
        self._listeners.append(listener)

    def on_announcement(self, listener: Callable[[Announcement], None]) -> None:
        """Have ``listener`` called with every new line of the event list."""
        self._announcement_listeners.append(listener)

    def begin(
        self,
        journal: Journaling,
        act: Callable[[Sequence[Action]], None],
        last_announcement: int,
    ) -> None:
        """Take events from now on, and have ``act`` carry out what they call for."""
        self._journal = journal
        self._act = act
        self._next_announcement = last_announcement + 1

    def submit(self, event: Event, marks: tuple[Mark, ...] = ()) -> "asyncio.Future[TakenEvent]":
        """Journal an event and hand it to the core; the future is done after both.

        It raises JournalFull when the event could not be journaled.
        """
        future: asyncio.Future[TakenEvent] = asyncio.get_running_loop().create_future()
        self._batches.add(SubmittedEvent(event, marks, future, again=False))
        return future

    def submit_marks(self, marks: tuple[Mark, ...]) -> "asyncio.Future[None]":
        """Journal how far outboxes were taken, in turn with the events; JournalFull as there."""
        entry = _PendingMarks(self.now_ns(), "", b"", marks)
        entry.future = asyncio.get_running_loop().create_future()
        self._batches.flush()
        self._put(entry)
        return entry.future

    def unmark(self, mark: Mark) -> None:
        """Journal that records of an outbox after this mark were not taken after all."""
        if self._journal is not None:
            self._journal.write(lambda store: store.unmark(mark))

    def post(self, event: Event, *, again: bool = True) -> None:
        """Submit an event that nobody waits for; kept for later while the journal is full.

        ``again=False`` is for what its sender tells again by itself.
        """
        self._batches.add(SubmittedEvent(event, (), None, again))

    def announce(self, subject: str, reason: str, message: str) -> None:
        """Add a line of the shell's own to the event list."""
        logger.warning("%s %s: %s", subject, reason, message)
        self._add_line(subject, reason, message)

    def announce_look(self, subject: str, reason: str, message: str) -> None:
        """Add a line about somebody who looks at what is not everybody's; that is no trouble."""
        logger.info("%s %s: %s", subject, reason, message)
        self._add_line(subject, reason, message)

    def _add_line(self, subject: str, reason: str, message: str) -> None:
        line = self._line(
            self.seq,
            self.now_ns(),
            Announce(id="", subject=subject, reason=reason, message=message),
        )
        if self._journal is not None:
            self._journal.write(lambda store: store.announce([line]))
        self._publish([line])

    def publish_followed(self, lines: Sequence[Announcement]) -> None:
        """Have followers of the event list see lines that another controller has written."""
        self._publish(lines)

    def act_on_what_is_due(self) -> None:
        """Carry out everything that the state still calls for, as after a restart."""
        self._act(self._fold.core.due(self.now_ns()))

    def adopt(self, taken_events: Sequence[TakenEvent]) -> None:
        """Record what replay decided and a crash kept from being recorded."""
        for taken in taken_events:
            self._record(taken)

    def report_rejections(self, taken_events: Sequence[TakenEvent]) -> None:
        """Tell the core what replay found that it cannot take, and a crash kept from being told."""
        for taken in taken_events:
            self._report_rejections(taken)

    # --- JournalUser -----------------------------------------------------------------------------

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        """See JournalUser."""
        for entry in entries:
            if isinstance(entry, _Pending):
                self._handle(entry)
            elif isinstance(entry, _PendingMarks) and not entry.future.done():
                entry.future.set_result(None)
        self._batches.end_rows(len(entries))

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        """See JournalUser."""
        if not self._full:
            self._full = True
            self.announce(CONTROLLER, "JournalFull", f"{error}; new work is refused")
        logger.error("%s; %d events refused", error, len(entries))
        for entry in entries:
            self._refuse(entry, error)
        self._batches.end_rows(len(entries))

    def journal_writable(self) -> None:
        """See JournalUser."""
        self._full = False
        self.announce(CONTROLLER, "JournalWritable", "the journal can be written again")
        postponed, self._postponed = self._postponed, []
        for event in postponed:
            self.post(event)

    # ---------------------------------------------------------------------------------------------

    def _append_row(self, submitted: Sequence[SubmittedEvent]) -> None:
        event = row_of(submitted)
        marks = tuple(mark for one in submitted for mark in one.marks)
        entry = _Pending(self.now_ns(), kind_of(event), encode(event), marks)
        entry.event, entry.submitted = event, submitted
        self._put(entry)

    def _put(self, entry: JournalEntry) -> None:
        if self._journal is None:
            raise RuntimeError("an event came before the journal was open")
        try:
            self._journal.append(entry)
        except JournalFull as error:
            self._refuse(entry, error)
        else:
            self._batches.begin_row()

    def _refuse(self, entry: JournalEntry, error: JournalFull) -> None:
        submitted = entry.submitted if isinstance(entry, _Pending) else ()
        self._postponed += [one.event for one in submitted if one.again]
        if isinstance(entry, _PendingMarks) and not entry.future.done():
            entry.future.set_exception(error)
        for one in submitted:
            if one.future is not None and not one.future.done():
                one.future.set_exception(error)

    def _handle(self, entry: _Pending) -> None:
        taken = self._fold.handle(entry.seq, entry.event, entry.now_ns)
        self.events_taken += len(entry.submitted)
        self._record(taken)
        self._report_rejections(taken)
        for listener in self._listeners:
            listener(taken)
        self._act(taken.actions)
        for one in entry.submitted:
            if one.future is not None and not one.future.done():
                one.future.set_result(taken)

    def _record(self, taken: TakenEvent) -> None:
        """Have the decision written down; lost in a crash, replay derives it again."""
        why = _why_rejected(taken)
        if self._journal is None or not (taken.actions or why):
            return
        seq, body = taken.seq, encode_actions(taken.actions)
        places = [one.place for one in taken.apart.left_out] if taken.apart is not None else None
        lines = [
            self._line(seq, taken.now_ns, action)
            for action in taken.actions
            if isinstance(action, Announce)
        ]

        def write(store: JournalWriter) -> None:
            if why:
                store.reject(seq, why, places)
            store.record(seq, body)
            store.announce(lines)

        self._journal.write(write)
        for line in lines:
            logger.info("%s %s: %s", line.subject, line.reason, line.message)
        self._publish(lines)

    def _line(self, seq: int, at_ns: int, action: Announce) -> Announcement:
        number, self._next_announcement = self._next_announcement, self._next_announcement + 1
        about = encode_about(action.about)
        said = action.subject, action.reason, action.message
        return Announcement(number, seq, at_ns, *said, about)

    def _publish(self, lines: Sequence[Announcement]) -> None:
        for line in lines:
            for listener in self._announcement_listeners:
                listener(line)

    def _report_rejections(self, taken: TakenEvent) -> None:
        """Tell the core what it could not take; a rejection of that itself is only logged."""
        for event, error in _rejected_events(taken):
            self.events_rejected += 1
            if isinstance(event, EventRejected):
                continue
            origin = getattr(event, "origin", None)
            node = getattr(event, "node", "") or (origin.node if origin is not None else "")
            job = getattr(event, "job", "")
            self.post(EventRejected(taken.seq, kind_of(event), error, node, job))


def _rejected_events(taken: TakenEvent) -> Iterator[tuple[JournaledEvent, str]]:
    """Yield the events that were found now to make the core raise, and how."""
    if taken.rejected:
        yield taken.event, taken.rejected
    left_out = taken.apart.left_out if taken.apart is not None else ()
    yield from ((one.event, one.error) for one in left_out if one.error)


def _why_rejected(taken: TakenEvent) -> str:
    """Return why an event is left out, or taken apart; empty where nothing of that is new."""
    together = [taken.apart.error] if taken.apart is not None else []
    return "; ".join(filter(None, [*together, *(error for _, error in _rejected_events(taken))]))
