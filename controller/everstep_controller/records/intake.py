"""Intake of records: each record of an agent is journaled in order and once, then acknowledged."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol, TypeGuard

from everstep_common.reports import FindingCleared, FindingRaised, RankExited
from everstep_controller.core.events import (
    Event,
    FindingSettled,
    JobProgressed,
    RanksExited,
    RecordRejected,
    Reported,
)
from everstep_controller.core.jobs.progress_rows import (
    ProgressRow,
    ProgressRows,
    ReportedSteps,
)
from everstep_controller.core.model.node import Origin
from everstep_controller.journal.port import Mark
from everstep_controller.records.exit_rows import ExitRows
from everstep_controller.records.finding_rows import FindingEvent, FindingRows
from everstep_controller.records.rejections import Rejection, Rejections
from everstep_controller.runtime.fold import TakenEvent


@dataclass(slots=True)
class OutboxAcks:
    """The records of one outbox between their arrival and the journal. Sequences only grow."""

    # All records up to here are journaled.
    journaled: int = 0
    _accepted: int = 0
    _held: set[int] = field(default_factory=set)
    _in_flight: int = 0
    # Records by the number of their handing over, while that may come to something.
    _flights: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _handed_over: int = 0
    # Records that were handed over before one that failed: they are not taken a second time.
    _before_failure: set[int] = field(default_factory=set)
    # When it was last written down how far it is journaled, how far, and the newest record but for
    # progress that was handed over: of those an agent is told nothing else later, so that they are
    # written down before they are acknowledged.
    marked_ns: int | None = None
    marked: int = 0
    lasting: int = 0

    def __post_init__(self) -> None:
        self._accepted = self.marked = self.journaled

    def accept(self, sequence: int) -> bool:
        """Return whether a record is new; it is held until it is submitted."""
        if sequence <= self._accepted:
            return False
        self._accepted = sequence
        if sequence in self._before_failure:
            return False
        self._held.add(sequence)
        return True

    @property
    def in_flight(self) -> int:
        """Return how many events of this outbox the journal has been handed and not answered."""
        return self._in_flight

    @property
    def flight(self) -> int:
        """Return the number of the newest handing over; `done` and `failed` ask for it."""
        return self._handed_over

    def submit(self, sequences: Iterable[int]) -> int:
        """Hand records to the journal; return how far the outbox is journaled once these are."""
        handed = tuple(sequences)
        self._held.difference_update(handed)
        self._in_flight += 1
        self._handed_over += 1
        self._flights[self._handed_over] = handed
        return min(self._held) - 1 if self._held else self._accepted

    def done(self, mark: int, flight: int) -> int:
        """Records up to ``mark`` are journaled; return what may be acknowledged now."""
        self._in_flight -= 1
        if self._flights.pop(flight, None) is not None and mark > self.journaled:
            self.journaled = mark
            # After a failure it has gone back to what was journaled then.
            self._accepted = max(self._accepted, mark)
            if self._before_failure:
                self._before_failure = {one for one in self._before_failure if one > mark}
        return self.journaled

    def failed(self, flight: int) -> None:
        """Some record could not be taken: the agent has to send again from there on.

        What was handed over behind it comes to nothing, whatever becomes of it. What was handed
        over before may be in the journal yet: its outcome can be unknown while others are refused.
        """
        self._in_flight -= 1
        if flight not in self._flights:
            return
        for number in [one for one in self._flights if one >= flight]:
            self._before_failure.difference_update(self._flights.pop(number))
        for handed in self._flights.values():
            self._before_failure.update(handed)
        self._held.clear()
        self._accepted = self.journaled
        self.marked = min(self.marked, self.journaled)


# How far an outbox was taken is written down with each of its records but for progress, and with
# progress no more often: every node tells of every step, and of a step that is told again the job's
# generation and number say so.
_MARK_NS = 60_000_000_000
# How often that is written down for findings that flap: each time is a write to the disk.
_FLAPPING_MARK_NS = 5_000_000_000
# What an agent may have in memory here; it sends faster than the journal writes after an outage.
_IN_FLIGHT_MAX = 2000


class Submitting(Protocol):
    """Sink of events: journals each, then hands it to the core."""

    def submit(self, event: Event, marks: tuple[Mark, ...] = ()) -> "asyncio.Future[TakenEvent]":
        """Return a future that is done when the event is journaled and taken."""
        ...

    def submit_marks(self, marks: tuple[Mark, ...]) -> "asyncio.Future[None]":
        """Return a future that is done when it is journaled how far outboxes were taken."""
        ...

    def unmark(self, mark: Mark) -> None:
        """Journal that records of an outbox after this mark were not taken after all."""
        ...


class Acknowledging(Protocol):
    """Sink of acknowledgements: tells agents how their records fare."""

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        """All records up to this sequence are journaled."""
        ...

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        """Some record could not be journaled; the agent shall send again later."""
        ...


class Intake:
    """Intake of all nodes' records; progress, ends of ranks and findings that flap are merged."""

    def __init__(
        self,
        runtime: Submitting,
        progress: ProgressRows,
        agents: Acknowledging,
        journaled: dict[str, int],
    ) -> None:
        self._runtime = runtime
        self._progress = progress
        self._agents = agents
        self._acks = {outbox: OutboxAcks(sequence) for outbox, sequence in journaled.items()}
        self._exits = ExitRows()
        self._findings = FindingRows()
        self._rejections = Rejections()
        # Records of which no row of their own says that they were taken: rejected ones, and
        # progress that says nothing new. They are acknowledged when the journal has what came
        # before the next tick; findings that flap, which are many, every few seconds.
        self._rejected: list[Origin] = []
        self._rowless: list[Origin] = []
        self._flapping: list[Origin] = []
        self._flapping_marked_ns = 0
        self._now_ns = 0

    def journaled(self, outbox: str) -> int:
        """Return how far an outbox is journaled."""
        return self._outbox(outbox).journaled

    def busy(self, outbox: str) -> bool:
        """Return whether so much of an outbox is on its way that its stream should wait."""
        return self._outbox(outbox).in_flight > _IN_FLIGHT_MAX

    def is_new(self, origin: Origin) -> bool:
        """Return whether a record is new; if so it has to be taken."""
        acks = self._acks.get(origin.outbox)
        return (acks or self._outbox(origin.outbox)).accept(origin.sequence)

    def take_event(self, origin: Origin, event: Event, now_ns: int) -> None:
        """Journal a record's event, after what waits of the node that came before it."""
        self._now_ns = now_ns
        if _is_exit(event) and self._exits.hold(event):
            return
        if _is_finding(event) and self._findings.hold(event, self._now_ns):
            self._flapping.append(origin)
            return
        self.flush_node(origin.node)
        self._submit(event, [origin])

    def take_steps(self, steps: ReportedSteps, now_ns: int) -> None:
        """Merge a record's progress."""
        self._now_ns = now_ns
        self._write(self._progress.add(steps))

    def reject(self, origin: Origin | None, rejection: Rejection, now_ns: int) -> None:
        """Leave out what cannot be used, and have it known; a record is acknowledged like others.

        Without an origin it was no record, and nobody waits for an acknowledgement.
        """
        if origin is not None:
            self._rejected.append(origin)
        for event in self._rejections.add(rejection, now_ns):
            self._submit(event, ())

    def tick(self, now_ns: int) -> None:
        """Journal the progress whose second is over, and marks of the records that made no row."""
        self._now_ns = now_ns
        self._write(self._progress.tick(now_ns))
        self._flush_exits()
        for settled in self._findings.take_due(now_ns):
            self._submit(settled, ())
        for event in self._rejections.tick(now_ns):
            self._submit(event, ())
        self._journal_marks()

    def flush_node(self, node: str) -> None:
        """Journal what waits of a node."""
        self._write(self._progress.flush_node(node))
        for row in self._exits.take_node(node):
            self._submit(row.event, row.origins)

    def begin_stream(self, node: str, now_ns: int) -> None:
        """Journal what waits of a node; its agent says anew what is open there."""
        self._now_ns = now_ns
        self.flush_node(node)
        self._flush_findings(node)

    def flush_all(self) -> None:
        """Journal everything that waits."""
        self._flapping_marked_ns = 0
        self._write(self._progress.flush_all())
        self._flush_exits()
        for node in self._findings.nodes():
            self._flush_findings(node)
        for event in self._rejections.flush():
            self._submit(event, ())
        self._journal_marks()

    # ---------------------------------------------------------------------------------------------

    def _outbox(self, outbox: str) -> OutboxAcks:
        known = self._acks.get(outbox)
        if known is None:
            known = self._acks[outbox] = OutboxAcks()
        return known

    def _write(self, rows: Sequence[ProgressRow]) -> None:
        for row in rows:
            if row.empty:
                # What makes it nothing new may be in a row that is not journaled yet.
                self._rowless += row.origins
            else:
                self._submit(row.event, row.origins)

    def _flush_exits(self) -> None:
        for node in self._exits.nodes():
            self.flush_node(node)

    def _flush_findings(self, node: str) -> None:
        for event in self._findings.take_node(node, self._now_ns):
            self._submit(event, ())

    def _journal_marks(self) -> None:
        """Journal that records were taken of which no row of their own says so."""
        if self._now_ns - self._flapping_marked_ns >= _FLAPPING_MARK_NS:
            self._flapping_marked_ns = self._now_ns
            self._rejected += self._flapping
            self._flapping = []
        rejected, self._rejected = self._rejected, []
        rowless, self._rowless = self._rowless, []
        lasting, passing = self._hand_over(rejected), self._hand_over(rowless)
        if lasting or passing:
            marks = (*_marks(lasting, rejected), *self._due_marks(passing))
            future = self._runtime.submit_marks(marks)
            future.add_done_callback(partial(self._settle, lasting + passing))

    def _submit(self, event: Event, origins: Iterable[Origin]) -> None:
        origins = tuple(origins)
        taking = self._hand_over(origins)
        progress = isinstance(event, JobProgressed)
        marks = self._due_marks(taking) if progress else _marks(taking, origins)
        future = self._runtime.submit(event, marks)
        future.add_done_callback(partial(self._done, event, taking))

    def _due_marks(self, taking: "Iterable[_InFlight]") -> tuple[Mark, ...]:
        """Return the marks of progress that are written down: of each outbox one a minute.

        One that releases records that came behind it, and were journaled before it, is written too.
        """
        due, last_ns = [], self._now_ns - _MARK_NS
        for mark, acks, _ in taking:
            owed = acks.marked < acks.lasting
            if owed or acks.marked_ns is None or acks.marked_ns <= last_ns:
                acks.marked_ns, acks.marked = self._now_ns, mark.sequence
                due.append(mark)
        return tuple(due)

    def _hand_over(self, origins: Iterable[Origin]) -> "list[_InFlight]":
        """Return, by outbox, what the journal is handed now; of each step there are thousands."""
        grouped: dict[tuple[str, str], list[int]] = {}
        for origin in origins:
            grouped.setdefault((origin.node, origin.outbox), []).append(origin.sequence)
        taking: list[_InFlight] = []
        for (node, outbox), sequences in grouped.items():
            acks = self._outbox(outbox)
            mark = Mark(node, outbox, acks.submit(sequences))
            taking.append(_InFlight(mark, acks, acks.flight))
        return taking

    def _done(
        self,
        event: Event,
        taking: "list[_InFlight]",
        future: "asyncio.Future[TakenEvent]",
    ) -> None:
        not_taken = future.exception() is not None or future.result().ignored
        if not_taken and isinstance(event, JobProgressed):
            self._progress.not_written(event)
        elif not_taken and isinstance(event, RecordRejected):
            self._rejections.not_written(event)
        elif not_taken and isinstance(event, FindingSettled):
            self._findings.not_written(event)
        elif not_taken and _is_finding(event):
            self._findings.not_taken(event)
        self._settle(taking, future)

    def _settle(
        self,
        taking: "list[_InFlight]",
        future: "asyncio.Future[TakenEvent] | asyncio.Future[None]",
    ) -> None:
        error = future.exception()
        taken = None if error is not None else future.result()
        for mark, acks, flight in taking:
            if error is not None:
                acks.failed(flight)
                self._agents.refused(mark.node, mark.outbox, str(error))
            elif taken is not None and taken.ignored:
                # It is in the journal, and came to nothing there: its agent keeps it until the
                # controller acts again, and has all streams opened anew.
                acks.failed(flight)
                self._runtime.unmark(mark._replace(sequence=acks.journaled))
            else:
                journaled = acks.done(mark.sequence, flight)
                self._agents.acknowledged(mark.node, mark.outbox, journaled)


class _InFlight(NamedTuple):
    """Records of an outbox that the journal has been handed, and the number of that."""

    mark: Mark
    acks: OutboxAcks
    flight: int


def _marks(taking: Iterable[_InFlight], origins: Iterable[Origin]) -> tuple[Mark, ...]:
    """Return the marks that are written down with records that have a row of their own."""
    newest: dict[str, int] = {}
    for origin in origins:
        newest[origin.outbox] = max(newest.get(origin.outbox, 0), origin.sequence)
    for mark, acks, _ in taking:
        acks.marked = mark.sequence
        acks.lasting = max(acks.lasting, newest[mark.outbox])
    return tuple(one.mark for one in taking)


def origins_of(event: Event) -> tuple[Origin, ...]:
    """Return the oldest and the newest record of an event; a row of progress names none."""
    origin: Origin | None = getattr(event, "origin", None)
    if origin is None:
        return ()
    if isinstance(event, RanksExited):
        return (replace(origin, sequence=event.first_sequence), origin)
    return (origin,)


def _is_exit(event: Event) -> TypeGuard[Reported[RankExited]]:
    return isinstance(event, Reported) and isinstance(event.report, RankExited)


def _is_finding(event: Event) -> TypeGuard[FindingEvent]:
    return isinstance(event, Reported) and isinstance(event.report, FindingRaised | FindingCleared)
