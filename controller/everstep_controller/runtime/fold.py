"""Fold of the journal: the core's state rebuilt from its events, without those that it rejects.

Of a batch that makes the core raise each event is taken alone, without those that do so even then.
Which these are is written down; where a crash kept that from happening, a replay finds the same.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from everstep_controller.core.actions import Action
from everstep_controller.core.events import Event, EventBatch, JournaledEvent, each_event
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import UnreadableError, decode_event, decode_state, kind_of
from everstep_controller.journal.port import (
    DamagedJournalError,
    Rejected,
    StoredEvent,
    StoredSnapshot,
)

logger = logging.getLogger(__name__)

# Of an event that is taken: no places of a batch, and not None.
_NOT_REJECTED: tuple[int, ...] = (-1,)


class Deciding(Protocol):
    """Interface of the pure core, as folding uses it."""

    state: State

    def takes(self, event: JournaledEvent) -> bool:
        """Return whether an event is taken now, or comes to nothing because the core is halted."""
        ...

    def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
        """Take one event and return what it calls for."""
        ...

    def due(self, now_ns: int) -> list[Action]:
        """Return everything that the state still calls for."""
        ...


CoreFactory = Callable[[State | None], Deciding]


class JournalHistory(Protocol):
    """Interface of the journal, as folding reads it."""

    def snapshot(self, through: int | None = None) -> StoredSnapshot | None:
        """Return the newest snapshot, or the newest that is not after an event."""
        ...

    def events(self, after: int, through: int | None = None) -> Iterator[StoredEvent]:
        """Yield events in order."""
        ...

    def removed_through(self) -> int:
        """Return the newest event that is no longer kept, because a snapshot is; 0 for none."""
        ...

    def rejections(self) -> Rejected:
        """Return the events that are left out."""
        ...


@dataclass(frozen=True, slots=True)
class LeftOutEvent:
    """An event of a batch that the core cannot take: its place there, and why."""

    place: int
    event: Event
    # Empty where that was found out before, and is written down.
    error: str


@dataclass(frozen=True, slots=True)
class TakenApart:
    """A batch that made the core raise: why, and which of its events are left out."""

    # Empty as with its events.
    error: str
    left_out: tuple[LeftOutEvent, ...]


@dataclass(frozen=True, slots=True)
class TakenEvent:
    """One event that the core took, and what it decided."""

    seq: int
    now_ns: int
    event: JournaledEvent
    actions: list[Action]
    # Why the core could not take it; then nothing was decided.
    rejected: str = ""
    # The event is what was taken, one by one, of such a batch.
    apart: TakenApart | None = None
    # The core was halted, and it came to nothing: nobody may be told that it was taken.
    ignored: bool = False


def events_taken(stored: StoredEvent, rejected: Rejected) -> Iterator[JournaledEvent]:
    """Yield what is handed to the core of a row: at once, or event by event. UnreadableError."""
    places = rejected.get(stored.seq, ())
    if places is None:
        return
    event = decode_event(stored.kind, stored.body)
    if stored.seq not in rejected:
        yield event
        return
    yield from (one for place, one in enumerate(each_event(event)) if place not in places)


class Fold:
    """Owner of the core, which it can bring to any point of the journal."""

    def __init__(self, core_factory: CoreFactory, history: JournalHistory) -> None:
        self._core_factory = core_factory
        self._history = history
        self._rejected = dict(history.rejections())
        self.core = core_factory(None)
        self.seq = 0

    @property
    def state(self) -> State:
        """Return the state after the newest event that was taken."""
        return self.core.state

    def replay(self) -> Iterator[TakenEvent]:
        """Fold the whole journal again, from its newest snapshot; yield what it decides."""
        self._restore(None)
        yield from self.follow(list(self._history.events(self.seq)))

    def follow(self, events: Iterable[StoredEvent]) -> Iterator[TakenEvent]:
        """Fold events that another controller has journaled; yield what it decides."""
        for stored in events:
            if stored.seq in self._rejected and self._rejected[stored.seq] is None:
                continue
            event = decode_event(stored.kind, stored.body)
            take = self._take_apart if stored.seq in self._rejected else self.handle
            yield take(stored.seq, event, stored.now_ns)

    def hear_rejections(self, rejected: Rejected) -> bool:
        """Take over what the controller that writes has left out; return whether it is news.

        Then the state was rebuilt. What was left out here alone is told there a moment later.
        """
        known = {seq: self._rejected.get(seq, _NOT_REJECTED) for seq in rejected}
        if known == rejected:
            return False
        self._rejected |= rejected
        if min(seq for seq in rejected if known[seq] != rejected[seq]) <= self.seq:
            self._rebuild(self.seq)
        return True

    def handle(self, seq: int, event: JournaledEvent, now_ns: int) -> TakenEvent:
        """Hand a journaled event to the core. An event that makes it raise is left out for good."""
        ignored = not self.core.takes(event)
        actions, error = self._try(seq, event, now_ns)
        if error and isinstance(event, EventBatch):
            self._rejected[seq] = ()
            self._rebuild(seq - 1)
            return self._take_apart(seq, event, now_ns, error)
        if error:
            self._rejected[seq] = None
            self._rebuild(seq - 1)
            return TakenEvent(seq, now_ns, event, [], rejected=error)
        self.seq = seq
        return TakenEvent(seq, now_ns, event, actions, ignored=ignored)

    def _try(self, seq: int, event: JournaledEvent, now_ns: int) -> tuple[list[Action], str]:
        """Hand an event to the core; return what it calls for, or how the core failed."""
        try:
            return self.core.handle(event, now_ns), ""
        except Exception as error:  # A poisoned event must not stop the controller for ever.
            logger.exception("event %d (%s) made the core raise", seq, kind_of(event))
            return [], f"{type(error).__name__}: {error}"

    def _take_apart(
        self, seq: int, batch: JournaledEvent, now_ns: int, why: str = ""
    ) -> TakenEvent:
        """Take each event of a batch alone, without those that make the core raise even so."""
        told, called_for = each_event(batch), list[Action]()
        known = (place for place in self._rejected[seq] or () if place < len(told))
        errors = dict.fromkeys(known, "")
        for place, event in enumerate(told):
            if place in errors:
                continue
            actions, error = self._try(seq, event, now_ns)
            called_for += actions
            if error:
                errors[place] = error
                self._rebuild(seq - 1)
                for before in range(place):
                    if before not in errors:
                        self.core.handle(told[before], now_ns)
        self.seq, self._rejected[seq] = seq, tuple(sorted(errors))
        taken = EventBatch(tuple(told[at] for at in range(len(told)) if at not in errors))
        left_out = tuple(LeftOutEvent(at, told[at], error) for at, error in sorted(errors.items()))
        return TakenEvent(seq, now_ns, taken, called_for, apart=TakenApart(why, left_out))

    def _rebuild(self, through: int) -> None:
        """Rebuild the state after an event: the core may have been half way through the next."""
        self._restore(through)
        for stored in list(self._history.events(self.seq, through)):
            for event in events_taken(stored, self._rejected):
                self.core.handle(event, stored.now_ns)
                self.seq = stored.seq

    def _restore(self, through: int | None) -> None:
        """Load the newest snapshot that can be read and is not after ``through``.

        Raises DamagedJournalError where there is none, and the events before it are not kept.
        """
        snapshot = self._history.snapshot(through)
        while snapshot is not None:
            try:
                self.core = self._core_factory(decode_state(snapshot.state))
                self.seq = snapshot.seq
            except UnreadableError as error:
                logger.error("snapshot %d is left out: %s", snapshot.seq, error)
                snapshot = self._history.snapshot(snapshot.seq - 1)
            else:
                return
        if removed := self._history.removed_through():
            raise DamagedJournalError(
                f"no snapshot of its state can be read, and events 1 to {removed} are not kept"
            )
        self.core = self._core_factory(None)
        self.seq = 0
