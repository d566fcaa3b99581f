"""Fold of the journal: the core's state rebuilt from its events, without those that it rejects."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from everstep_controller.core.actions import Action
from everstep_controller.core.events import JournaledEvent
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import UnreadableError, decode_event, decode_state, kind_of
from everstep_controller.journal.store import StoredEvent, StoredSnapshot

logger = logging.getLogger(__name__)


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

    def rejections(self) -> set[int]:
        """Return the events that are left out."""
        ...


@dataclass(frozen=True, slots=True)
class TakenEvent:
    """One event that the core took, and what it decided."""

    seq: int
    now_ns: int
    event: JournaledEvent
    actions: list[Action]
    # Why the core could not take it; then nothing was decided.
    rejected: str = ""
    # The core was halted, and it came to nothing: nobody may be told that it was taken.
    ignored: bool = False


class Fold:
    """Owner of the core, which it can bring to any point of the journal."""

    def __init__(self, core_factory: CoreFactory, history: JournalHistory) -> None:
        self._core_factory = core_factory
        self._history = history
        self._rejected = history.rejections()
        self.core = core_factory(None)
        self.seq = 0

    @property
    def state(self) -> State:
        """Return the state after the newest event that was taken."""
        return self.core.state

    def replay(self) -> Iterator[TakenEvent]:
        """Fold the whole journal again, from its newest snapshot; yield what it decides."""
        self._restore(None)
        for stored in list(self._history.events(self.seq)):
            if stored.seq not in self._rejected:
                yield self._handle_stored(stored)

    def handle(self, seq: int, event: JournaledEvent, now_ns: int) -> TakenEvent:
        """Hand a journaled event to the core. An event that makes it raise is left out for good."""
        ignored = not self.core.takes(event)
        try:
            actions = self.core.handle(event, now_ns)
        except Exception as error:  # A poisoned event must not stop the controller for ever.
            logger.exception("event %d (%s) made the core raise", seq, kind_of(event))
            return self._leave_out(seq, event, now_ns, f"{type(error).__name__}: {error}")
        self.seq = seq
        return TakenEvent(seq, now_ns, event, actions, ignored=ignored)

    def _handle_stored(self, stored: StoredEvent) -> TakenEvent:
        return self.handle(stored.seq, decode_event(stored.kind, stored.body), stored.now_ns)

    def _leave_out(self, seq: int, event: JournaledEvent, now_ns: int, error: str) -> TakenEvent:
        """Rebuild the state before the event: the core may have been half way through it."""
        self._rejected.add(seq)
        self._restore(seq - 1)
        for stored in list(self._history.events(self.seq, seq - 1)):
            if stored.seq not in self._rejected:
                self.core.handle(decode_event(stored.kind, stored.body), stored.now_ns)
                self.seq = stored.seq
        return TakenEvent(seq, now_ns, event, [], rejected=error)

    def _restore(self, through: int | None) -> None:
        """Load the newest snapshot that can be read and is not after ``through``."""
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
        self.core = self._core_factory(None)
        self.seq = 0
