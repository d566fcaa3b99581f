"""Group commit: one thread that commits together all events that came since the last commit.

A commit that is refused is told so, and with it all that was handed in behind it. One whose outcome
is unknown holds up the queue until the journal says which it was; if it was not made, it is made
again: nobody hears of a refusal then.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from everstep_controller.journal.lease import SURE_S
from everstep_controller.journal.port import (
    JournalLostError,
    JournalUnknownError,
    JournalWriteError,
    JournalWriter,
    Mark,
    StoredEvent,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# More in one transaction gains nothing (measured: 114,000 rows/s in batches of 1,000).
_BATCH = 1000
# How often a full disk is asked whether there is space again.
_PROBE_S = 1.0
# For so long the loop carries out what is durable, before others of the loop have their turn: what
# the first of 1,000 findings calls for does not wait until the last one is decided.
_TURN_S = 0.005
_ENDED = "the journal's thread has ended"
# How often it is asked whether a write has succeeded, while none has lately.
_SURE_LOOK_S = 0.1
# Entries that are handed over without a look at the time.
_SLICE = 8


class JournalFull(Exception):  # noqa: N818 - a condition that passes, not a mistake
    """The journal cannot be written now; nothing that was acknowledged is lost."""


@dataclass(slots=True)
class JournalEntry:
    """An event on its way into the journal; one without a kind brings its marks only."""

    now_ns: int
    kind: str
    body: bytes
    marks: tuple[Mark, ...] = ()
    seq: int = 0
    # Entries of an epoch that ended in a failure are refused, so none overtakes one that failed.
    epoch: int = 0


class JournalUser(Protocol):
    """Callbacks of GroupCommit; called on the event loop, in the order of the journal."""

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        """Take entries that are durable now."""
        ...

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        """Take entries that are not in the journal; none where new ones are refused for now."""
        ...

    def journal_writable(self) -> None:
        """Learn that the journal takes entries again."""
        ...


@dataclass(slots=True)
class _Call(Generic[T]):
    operation: Callable[[JournalWriter], T]
    future: "asyncio.Future[T]"


Write = Callable[[JournalWriter], None]


@dataclass(slots=True)
class _Unsettled:
    """A transaction of which nobody knows whether it is durable."""

    why: str
    entries: list[JournalEntry] = field(default_factory=list)
    # Of what is owed, so many operations were in it.
    writes: int = 0
    # It was asked for once, in vain; from then on new entries are refused.
    is_told: bool = False


@dataclass(slots=True)
class _Batch:
    entries: list[JournalEntry] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    calls: "list[_Call[object]]" = field(default_factory=list)
    stop: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.writes or self.calls or self.stop)

    def add(self, item: "JournalEntry | Write | _Call[object] | None") -> None:
        if item is None:
            self.stop = True
        elif isinstance(item, JournalEntry):
            self.entries.append(item)
        elif isinstance(item, _Call):
            self.calls.append(item)
        else:
            self.writes.append(item)


class GroupCommit:
    """Appends events durably; its thread owns the connection."""

    def __init__(self, open_store: Callable[[], JournalWriter], user: JournalUser) -> None:
        self._open_store = open_store
        self._user = user
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[JournalEntry | Write | _Call[object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal")
        # Done when the thread has died, or what it journaled was not taken: neither ever should.
        self.failure: asyncio.Future[None] = self._loop.create_future()
        # When the newest write began that has succeeded, on the loop's clock.
        self._proven_s = float("-inf")
        self._epoch = 0
        self._full: JournalFull | None = None
        # What the thread has told, in the order of the journal; and whether the loop is at it.
        self._told: deque[Callable[[], None]] = deque()
        self._is_telling = False
        # Used by the thread alone:
        self._failing = False
        self._valid_epoch = 0
        self._owed: deque[Write] = deque()
        self._next_seq = 0
        self._unsettled: _Unsettled | None = None
        # Entries that came behind a transaction that is not settled, or that was not made.
        self._held: list[JournalEntry] = []

    def start(self, last_seq: int) -> None:
        """Begin to take entries; the next one gets the number after ``last_seq``."""
        self._next_seq = last_seq + 1
        self._thread.start()

    async def stop(self) -> None:
        """Write what was handed in, and end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        while self._told:
            self._told.popleft()()

    async def sure(self) -> None:
        """Wait until this controller has just proven, by writing, that it is the one that acts."""
        while self._loop.time() - self._proven_s > SURE_S:  # noqa: ASYNC110 - a thread writes it
            await asyncio.sleep(_SURE_LOOK_S)

    @property
    def full(self) -> JournalFull | None:
        """Return why nothing can be journaled now, or None."""
        return self._full

    def append(self, entry: JournalEntry) -> None:
        """Journal an entry. Raises JournalFull at once while the journal cannot be written."""
        if self._full is not None:
            raise self._full
        entry.epoch = self._epoch
        self._queue.put(entry)

    def write(self, operation: Write) -> None:
        """Write what can be derived again; tried until it succeeds."""
        self._queue.put(operation)

    async def call(self, operation: Callable[[JournalWriter], T]) -> T:
        """Run an operation in a transaction and return its result. Raises JournalFull."""
        if self.failure.done():
            raise JournalFull(_ENDED)
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Call(operation, future))  # type: ignore[arg-type]
        return await future

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except JournalLostError as error:
            self._post(self._die, error)
        except Exception as error:  # Whoever watches this ends the process: nobody else would.
            logger.exception("the journal's thread died")
            self._post(self._die, error)

    def _serve(self) -> None:
        store = self._open_store()
        if store.beat_s is None:
            # No other controller can have the journal open.
            self._proven_s = float("inf")
        try:
            stops = False
            while not stops:
                batch = self._take(store.beat_s)
                stops = batch.stop
                self._serve_batch(store, batch)
            # What is unknown even then is told to nobody: its senders ask again.
            if self._unsettled is not None and self._settle(store):
                self._commit(store)
        finally:
            store.close()

    def _serve_batch(self, store: JournalWriter, batch: _Batch) -> None:
        self._owed.extend(batch.writes)
        self._held += batch.entries
        try:
            if self._settle(store):
                self._commit(store, is_beat=batch.is_empty)
            for call in batch.calls:
                self._answer(store, call)
        except Exception:
            for call in batch.calls:
                self._post(_refuse, call, JournalFull(_ENDED))
            raise

    def _take(self, beat_s: float | None) -> _Batch:
        """Wait for work; while nothing can be written, no longer than until the next probe."""
        batch = _Batch()
        waits_s = _PROBE_S if self._failing else beat_s
        if self._unsettled is not None:
            waits_s = _PROBE_S if self._unsettled.is_told else 0.0
        try:
            batch.add(self._queue.get(timeout=waits_s))
            while len(batch.entries) + len(batch.writes) < _BATCH and not batch.stop:
                batch.add(self._queue.get_nowait())
        except Empty:
            pass
        return batch

    def _settle(self, store: JournalWriter) -> bool:
        """Return whether nothing is unknown; ask the journal where something is."""
        unsettled = self._unsettled
        if unsettled is None:
            return True
        try:
            durable = store.settle()
        except JournalUnknownError as error:
            self._stand(unsettled, str(error))
            return False
        self._unsettled = None
        if durable:
            for _ in range(unsettled.writes):
                self._owed.popleft()
            self._note_durable(unsettled.entries)
        else:
            self._held[:0] = unsettled.entries
        if unsettled.is_told and not self._failing:
            self._post(self._recovered, self._valid_epoch)
        return True

    def _stand(self, unsettled: _Unsettled, why: str) -> None:
        """Have new entries refused while the queue stands."""
        if not unsettled.is_told:
            unsettled.is_told = True
            error = JournalFull(f"the journal does not say what it has kept: {why}")
            self._post(self._failed, [], error)

    def _commit(self, store: JournalWriter, *, is_beat: bool = False) -> None:
        entries, self._held = self._held, []
        refused = [entry for entry in entries if entry.epoch < self._valid_epoch]
        taken = [entry for entry in entries if entry.epoch >= self._valid_epoch]
        if refused:
            self._post(self._user.not_journaled, refused, JournalFull("the journal is full"))
        if not (taken or self._owed or self._failing or is_beat):
            return
        began_s = self._loop.time()
        if self._failing and not self._probe(store, taken):
            return
        try:
            self._write(store, taken)
        except JournalWriteError as error:
            self._fail(taken, JournalFull(f"the journal cannot be written: {error}"))
            return
        except JournalUnknownError as error:
            self._unsettled = _Unsettled(str(error), taken, len(self._owed))
            return
        self._proven_s = max(self._proven_s, began_s)
        self._owed.clear()
        if self._failing:
            self._failing = False
            self._post(self._recovered, self._valid_epoch)
        self._note_durable(taken)

    def _probe(self, store: JournalWriter, taken: list[JournalEntry]) -> bool:
        """Return whether the journal can be written again, before entries are written."""
        try:
            store.probe()
        except JournalWriteError as error:
            self._fail(taken, JournalFull(f"the journal cannot be written: {error}"))
            return False
        except JournalUnknownError as error:
            # None of the entries is in it: what becomes of it is nothing to them.
            self._unsettled = _Unsettled(str(error))
            self._held[:0] = taken
            return False
        return True

    def _write(self, store: JournalWriter, entries: list[JournalEntry]) -> None:
        numbered = [entry for entry in entries if entry.kind]
        for seq, entry in enumerate(numbered, start=self._next_seq):
            entry.seq = seq
        events = [StoredEvent(e.seq, e.now_ns, e.kind, e.body) for e in numbered]
        with store.transaction():
            store.append(events, [mark for entry in entries for mark in entry.marks])
            for operation in self._owed:
                operation(store)

    def _note_durable(self, entries: list[JournalEntry]) -> None:
        self._next_seq += sum(1 for entry in entries if entry.kind)
        for at in range(0, len(entries), _SLICE):
            self._post(self._hand_over, entries[at : at + _SLICE])

    def _fail(self, entries: list[JournalEntry], error: JournalFull) -> None:
        if not self._failing:
            self._failing = True
            self._valid_epoch += 1
            self._post(self._failed, entries, error)

    def _answer(self, store: JournalWriter, call: _Call[object]) -> None:
        if self._unsettled is not None:
            why = f"the journal does not say what it has kept: {self._unsettled.why}"
            self._post(_refuse, call, JournalFull(why))
            return
        try:
            with store.transaction():
                result = call.operation(store)
        except JournalWriteError as error:
            self._post(_refuse, call, JournalFull(f"the journal cannot be written: {error}"))
        except JournalUnknownError as error:
            # Chores are done again: who waits for one hears at once that it may not be done.
            self._unsettled = _Unsettled(str(error))
            why = f"the journal does not say whether it has kept this: {error}"
            self._post(_refuse, call, JournalFull(why))
        else:
            self._post(_resolve, call, result)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        self._told.append(partial(callback, *arguments))
        try:
            self._loop.call_soon_threadsafe(self._listen)
        except RuntimeError:
            # The loop is closed: nobody waits for an answer any more.
            logger.debug("an answer of the journal came after the end")

    # --- back on the loop ------------------------------------------------------------------------

    def _listen(self) -> None:
        """Begin with what the thread has told, unless that is under way."""
        if not self._is_telling:
            self._is_telling = True
            self._take_turn()

    def _take_turn(self) -> None:
        until_s = self._loop.time() + _TURN_S
        try:
            while self._told:
                self._told.popleft()()
                if self._loop.time() > until_s:
                    break
        finally:
            self._is_telling = bool(self._told)
            if self._is_telling:
                self._loop.call_soon(self._take_turn)

    def _hand_over(self, entries: list[JournalEntry]) -> None:
        if self.failure.done():
            return
        try:
            self._user.journaled(entries)
        except Exception as error:  # The state is not what the journal says any more.
            logger.exception("what is in the journal could not be carried out")
            self._end(error)

    def _end(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    def _die(self, error: BaseException) -> None:
        """End, and refuse the calls that the thread will never come to."""
        self._end(error)
        while not self._queue.empty():
            if isinstance(item := self._queue.get(), _Call):
                _refuse(item, JournalFull(_ENDED))

    def _failed(self, entries: list[JournalEntry], error: JournalFull) -> None:
        self._full = error
        self._user.not_journaled(entries, error)

    def _recovered(self, epoch: int) -> None:
        self._full = None
        self._epoch = epoch
        self._user.journal_writable()


def _resolve(call: _Call[object], result: object) -> None:
    if not call.future.done():
        call.future.set_result(result)


def _refuse(call: _Call[object], error: JournalFull) -> None:
    if not call.future.done():
        call.future.set_exception(error)
