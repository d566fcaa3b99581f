"""Event batches: events of one kind that wait for the journal together become one row of it.

A quarter of a fleet that is lost is tens of thousands of events, and all ranks of a job that exit
are a row for each node. While the journal writes nothing an event waits for nobody but those of
its own pass of the event loop; else it waits for what is being written, as it would have anyway.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everstep_controller.core.events import Event, EventBatch, batch_of
from everstep_controller.journal.port import Mark
from everstep_controller.runtime.fold import TakenEvent

# The loop does nothing else while one is decided by: some hundredths of a second.
BATCH_MAX = 512


@dataclass(frozen=True, slots=True)
class SubmittedEvent:
    """An event on its way into the journal, and who waits for it."""

    event: Event
    marks: tuple[Mark, ...]
    future: "asyncio.Future[TakenEvent] | None"
    # Nobody tells it a second time, so the shell does when the journal can be written again.
    again: bool


def row_of(submitted: Sequence[SubmittedEvent]) -> Event | EventBatch:
    """Return what is journaled of events that came together."""
    told = tuple(one.event for one in submitted)
    return told[0] if len(told) == 1 else EventBatch(told)


class EventBatches:
    """Collector of events on their way into the journal; their order stays."""

    def __init__(self, write: Callable[[Sequence[SubmittedEvent]], None]) -> None:
        self._write = write
        self._waiting: list[SubmittedEvent] = []
        self._kind = ""
        # Rows that the journal has been handed and has not answered; and whether these events go
        # out at the end of this pass of the loop.
        self._being_written = 0
        self._scheduled = False

    def add(self, submitted: SubmittedEvent) -> None:
        """Have an event written, after all that came before it."""
        kind = batch_of(submitted.event)
        if kind != self._kind or not kind or len(self._waiting) >= BATCH_MAX:
            self.flush()
        self._waiting.append(submitted)
        self._kind = kind
        if not kind:
            self.flush()
        elif not self._being_written and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._end_pass)

    def flush(self) -> None:
        """Hand over what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write(waiting)

    def begin_row(self) -> None:
        """Note that the journal was handed a row."""
        self._being_written += 1

    def end_rows(self, count: int) -> None:
        """Note that the journal has answered for rows; what waited for them goes out."""
        self._being_written -= count
        if not self._being_written:
            self.flush()

    def _end_pass(self) -> None:
        self._scheduled = False
        if not self._being_written:
            self.flush()
