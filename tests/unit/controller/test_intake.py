import asyncio
from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding, Severity
from everstep_common.reports import CheckFinished, FindingCleared, FindingRaised, RankExited
from everstep_controller.core.events import (
    Event,
    FindingSettled,
    JobProgressed,
    RanksExited,
    RecordRejected,
    Reported,
    kind_of,
)
from everstep_controller.core.jobs.progress_rows import ProgressRows, ReportedSteps, Reporters
from everstep_controller.core.model.node import Origin
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.journal.port import Mark
from everstep_controller.records.intake import Intake
from everstep_controller.records.rejections import ROW_NS, Rejection
from everstep_controller.runtime.fold import TakenEvent

_S = 1_000_000_000


@dataclass
class Desk:
    """Takes what the intake submits, and answers when the test says so."""

    submitted: list[tuple[Event, tuple[Mark, ...]]] = field(default_factory=list)
    futures: "list[asyncio.Future[TakenEvent]]" = field(default_factory=list)
    marked: "list[tuple[tuple[Mark, ...], asyncio.Future[None]]]" = field(default_factory=list)
    unmarked: list[Mark] = field(default_factory=list)
    acknowledgements: list[int] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def submit(self, event: Event, marks: tuple[Mark, ...] = ()) -> "asyncio.Future[TakenEvent]":
        self.submitted.append((event, marks))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def submit_marks(self, marks: tuple[Mark, ...]) -> "asyncio.Future[None]":
        self.marked.append((marks, asyncio.get_running_loop().create_future()))
        return self.marked[-1][1]

    def unmark(self, mark: Mark) -> None:
        self.unmarked.append(mark)

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        self.acknowledgements.append(sequence)

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        self.refusals.append(node)

    async def journal(self, error: JournalFull | None = None, *, ignored: bool = False) -> None:
        for number, future in enumerate(self.futures):
            if not future.done() and error is not None:
                future.set_exception(error)
            elif not future.done():
                event = self.submitted[number][0]
                future.set_result(TakenEvent(number, 0, event, [], ignored=ignored))
        for _, marking in self.marked:
            if not marking.done() and error is not None:
                marking.set_exception(error)
            elif not marking.done():
                marking.set_result(None)
        await asyncio.sleep(0)


def intake(desk: Desk, members: tuple[str, ...] = ("a", "b")) -> Intake:
    progress = ProgressRows(lambda _: Reporters(1, members, running=True))
    return Intake(desk, progress, desk, {"box": 2})


def origin(sequence: int) -> Origin:
    return Origin("a", "box", sequence)


def check(sequence: int) -> Event:
    return Reported(origin(sequence), 0, CheckFinished("order", True, "fine"))


def test_a_record_that_a_halted_core_ignored_is_not_acknowledged_nor_one_behind_it() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        for sequence in (3, 4):
            assert taking.is_new(origin(sequence))
            taking.take_event(origin(sequence), check(sequence), 0)
        await desk.journal(ignored=True)
        assert (desk.acknowledgements, desk.refusals) == ([], [])
        assert desk.unmarked == [Mark("a", "box", 2)] * 2
        assert taking.journaled("box") == 2
        taking.is_new(origin(3))
        taking.take_event(origin(3), check(3), 0)
        await desk.journal()
        assert desk.acknowledgements == [3]

    asyncio.run(scenario())


def test_a_record_is_acknowledged_only_after_it_is_journaled() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert not taking.is_new(origin(2))
        assert taking.is_new(origin(3))
        taking.take_event(origin(3), check(3), 0)
        assert desk.acknowledgements == []
        assert desk.submitted[0][1] == (Mark("a", "box", 3),)
        await desk.journal()
        assert desk.acknowledgements == [3]

    asyncio.run(scenario())


def test_progress_that_waits_is_journaled_before_the_next_record_of_its_node() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk, ("a",))
        assert taking.is_new(origin(3))
        taking.take_steps(ReportedSteps("job", 1, 0, (5,), (0,), 0, origin(3)), 0)
        assert desk.submitted == []
        assert taking.is_new(origin(4))
        taking.take_event(origin(4), check(4), 0)
        kinds = [kind_of(event) for event, _ in desk.submitted]
        assert kinds == [JobProgressed, CheckFinished]
        assert [marks[0].sequence for _, marks in desk.submitted] == [3, 4]
        await desk.journal()
        assert desk.acknowledgements[-1] == 4

    asyncio.run(scenario())


def test_a_step_that_not_all_have_made_is_acknowledged_and_not_journaled() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert taking.is_new(origin(3))
        taking.take_steps(ReportedSteps("job", 1, 0, (5,), (0,), 0, origin(3)), 0)
        assert taking.is_new(origin(4))
        taking.take_event(origin(4), check(4), 0)
        assert [kind_of(event) for event, _ in desk.submitted] == [CheckFinished]
        taking.tick(1)
        await desk.journal()
        assert desk.acknowledgements[-1] == 4

    asyncio.run(scenario())


def test_a_record_that_says_nothing_new_is_acknowledged_once_that_is_in_the_journal() -> None:
    async def scenario() -> None:
        desk = Desk()
        progress = ProgressRows(lambda _: Reporters(1, ("a",), running=True))
        taking = Intake(desk, progress, desk, {})
        assert taking.is_new(origin(1))
        taking.take_steps(ReportedSteps("job", 1, 0, (5,), (0,), 0, origin(1)), 0)
        taking.tick(ROW_NS)
        assert [kind_of(event) for event, _ in desk.submitted] == [JobProgressed]
        late = Origin("b", "other", 1)
        assert taking.is_new(late)
        taking.take_steps(ReportedSteps("job", 1, 0, (6,), (0,), 0, late), ROW_NS)
        taking.tick(2 * ROW_NS)
        # A crash now loses the row: "b" has to tell of the step again, so it must still have it.
        assert desk.acknowledgements == []
        assert [marks for marks, _ in desk.marked] == [(Mark("b", "other", 1),)]
        await desk.journal()
        assert desk.acknowledgements == [1, 1]

    asyncio.run(scenario())


def test_progress_is_acknowledged_at_once_and_marked_once_a_minute() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk, ("a",))
        for sequence in range(3, 64):
            now_ns = sequence * _S
            assert taking.is_new(origin(sequence))
            steps = ReportedSteps("job", 1, sequence, (5,), (0,), 0, origin(sequence))
            taking.take_steps(steps, now_ns)
            taking.tick(now_ns + _S)
            await desk.journal()
            assert desk.acknowledgements[-1] == sequence
        written = [marks for _, marks in desk.submitted if marks]
        assert written == [(Mark("a", "box", 3),), (Mark("a", "box", 63),)]
        assert taking.is_new(origin(64))
        taking.take_event(origin(64), check(64), 0)
        assert desk.submitted[-1][1] == (Mark("a", "box", 64),)

    asyncio.run(scenario())


def test_a_record_behind_progress_without_a_row_is_marked_before_it_is_acknowledged() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        for first in (3, 5):
            assert taking.is_new(origin(first))
            steps = ReportedSteps("job", 1, first, (5,), (0,), 0, origin(first))
            taking.take_steps(steps, first * _S)
            assert taking.is_new(origin(first + 1))
            taking.take_event(origin(first + 1), check(first + 1), first * _S)
            # The step of one of two nodes makes no row, and waits for the next tick.
            assert desk.submitted[-1][1] == (Mark("a", "box", first - 1),)
            await desk.journal()
            assert desk.acknowledgements[-1] == first - 1
            taking.tick((first + 1) * _S)
            # Nothing else in the journal says that this agent is told of its check's end.
            assert desk.marked[-1][0] == (Mark("a", "box", first + 1),)
            await desk.journal()
            assert desk.acknowledgements[-1] == first + 1

    asyncio.run(scenario())


def test_the_ends_of_a_nodes_ranks_are_two_rows_before_what_it_says_next() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        for sequence in range(3, 11):
            died = RankExited(generation=1, rank=sequence, exit_code=1, signal=0, last_line="boom")
            assert taking.is_new(origin(sequence))
            taking.take_event(
                origin(sequence), Reported(origin(sequence), sequence, died, "job"), 0
            )
        assert [kind_of(event) for event, _ in desk.submitted] == [RankExited]
        assert taking.is_new(origin(11))
        taking.take_event(origin(11), check(11), 0)
        kinds = [kind_of(event) for event, _ in desk.submitted]
        assert kinds == [RankExited, RanksExited, CheckFinished]
        assert [marks[0].sequence for _, marks in desk.submitted] == [3, 10, 11]
        await desk.journal()
        assert desk.acknowledgements[-1] == 11

    asyncio.run(scenario())


def test_what_could_not_be_journaled_is_taken_when_it_is_sent_again() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert taking.is_new(origin(3))
        taking.take_event(origin(3), check(3), 0)
        await desk.journal(JournalFull("no space"))
        assert desk.refusals == ["a"]
        assert desk.acknowledgements == []
        assert taking.is_new(origin(3))

    asyncio.run(scenario())


BAD = Rejection("a", "launcher_joined", "train", "no processes")


def rows(desk: Desk) -> list[RecordRejected]:
    return [event for event, _ in desk.submitted if isinstance(event, RecordRejected)]


def test_a_rejected_record_is_acknowledged_once_its_mark_is_journaled() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert taking.is_new(origin(3))
        taking.reject(origin(3), BAD, 0)
        await desk.journal()
        assert desk.acknowledgements == []
        taking.tick(1)
        assert [marks for marks, _ in desk.marked] == [(Mark("a", "box", 3),)]
        assert desk.acknowledgements == []
        await desk.journal()
        assert desk.acknowledgements == [3]
        taking.tick(2)
        assert len(desk.marked) == 1

    asyncio.run(scenario())


def test_records_after_a_rejected_one_are_journaled_at_once_and_acknowledged_with_it() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert taking.is_new(origin(3))
        taking.reject(origin(3), BAD, 0)
        assert taking.is_new(origin(4))
        taking.take_event(origin(4), check(4), 0)
        assert desk.submitted[-1] == (check(4), (Mark("a", "box", 2),))
        taking.tick(1)
        assert desk.marked[0][0] == (Mark("a", "box", 4),)
        await desk.journal()
        assert desk.acknowledgements[-1] == 4

    asyncio.run(scenario())


def test_very_many_rejected_records_are_two_rows_in_a_minute_and_all_acknowledged() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        for sequence in range(3, 1003):
            assert taking.is_new(origin(sequence))
            taking.reject(origin(sequence), BAD, 5)
        taking.tick(6)
        assert [row.count for row in rows(desk)] == [1]
        taking.tick(5 + ROW_NS)
        assert [row.count for row in rows(desk)] == [1, 999]
        await desk.journal()
        assert desk.acknowledgements[-1] == 1002

    asyncio.run(scenario())


def test_a_rejected_record_that_a_full_disk_forgot_is_sent_again() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        assert taking.is_new(origin(3))
        taking.reject(origin(3), BAD, 0)
        taking.tick(1)
        await desk.journal(JournalFull("no space"))
        assert desk.refusals == ["a"]
        assert desk.acknowledgements == []
        assert taking.is_new(origin(3))
        taking.tick(ROW_NS)
        assert [row.count for row in rows(desk)] == [1, 1]

    asyncio.run(scenario())


def test_what_was_no_record_is_told_and_acknowledges_nothing() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        taking.reject(None, Rejection("a", "samples", "", "half a row"), 0)
        taking.tick(1)
        await desk.journal()
        assert [row.kind for row in rows(desk)] == ["samples"]
        assert desk.marked == []
        assert desk.acknowledgements == []

    asyncio.run(scenario())


_ODD = Finding(component="gpu/0", condition="Odd", severity=Severity.FATAL, message="odd")


def _flap(taking: Intake, first: int, count: int, now_ns: int = 0) -> None:
    """Take records of a finding that is raised and cleared again and again."""
    for sequence in range(first, first + count):
        report = FindingCleared("gpu/0", "Odd", "well") if sequence % 2 else FindingRaised(_ODD)
        assert taking.is_new(origin(sequence))
        taking.take_event(origin(sequence), Reported(origin(sequence), 0, report), now_ns)


def test_records_of_a_finding_that_flaps_are_acknowledged_with_few_rows() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        _flap(taking, 4, 400)
        assert taking.is_new(origin(404))
        taking.take_event(origin(404), check(404), 0)
        taking.tick(6 * _S)
        await desk.journal()
        assert desk.acknowledgements[-1] == 404
        # An agent would take it for an old journal that knows less after a start than it said.
        assert desk.marked[-1][0][-1] == Mark("a", "box", 404)
        assert len(desk.submitted) <= 6
        taking.tick(59 * _S)
        assert not [one for one, _ in desk.submitted if isinstance(one, FindingSettled)]
        taking.tick(62 * _S)
        assert desk.submitted[-1] == (FindingSettled("a", _ODD.key, 0, None, "well"), ())

    asyncio.run(scenario())


def test_what_flaps_before_the_first_tick_waits_for_its_minute_as_well() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        _flap(taking, 4, 20, now_ns=1000 * _S)
        taking.tick(1001 * _S)
        assert not [one for one, _ in desk.submitted if isinstance(one, FindingSettled)]

    asyncio.run(scenario())


def test_what_settled_is_journaled_later_when_the_journal_was_full() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        _flap(taking, 4, 20)
        await desk.journal()
        taking.tick(62 * _S)
        settled = desk.submitted[-1]
        await desk.journal(JournalFull("full"))
        taking.tick(63 * _S)
        assert desk.submitted[-2:] == [settled, settled]

    asyncio.run(scenario())


def test_a_new_stream_begins_with_what_is_held_of_its_node() -> None:
    async def scenario() -> None:
        desk = Desk()
        taking = intake(desk)
        _flap(taking, 4, 20)
        await desk.journal()
        rows = len(desk.submitted)
        taking.begin_stream("a", 0)
        assert [type(one) for one, _ in desk.submitted[rows:]] == [FindingSettled]

    asyncio.run(scenario())
