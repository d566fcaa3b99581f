"""A commit whose outcome is unknown, over a real file: nothing is lost, doubled or out of order."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everstep_controller.core.events import TimerDue
from everstep_controller.journal import codec
from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.port import (
    JournalLostError,
    JournalUnknownError,
    JournalWriteError,
    JournalWriter,
)
from everstep_controller.journal.sqlite.journal import SqliteJournal


class DistantJournal(SqliteJournal):
    """A journal at the end of a line that breaks in commits, as told beforehand.

    Of each commit "-" says that it was answered, "lost" and "kept" that the line broke before it
    was made, or after. After a break it answers no question for so many times.
    """

    def __init__(self, path: Path, breaks: Iterator[str], silences: Iterator[int]) -> None:
        super().__init__(path)
        self._breaks, self._silences = breaks, silences
        self._silent, self._was_kept = 0, False
        self.asked = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See JournalWriter."""
        how = next(self._breaks, "-")
        self.begin()
        yield
        if how == "lost":
            self.rollback()
        else:
            self.commit()
        if how != "-":
            self._silent, self._was_kept = next(self._silences, 0), how == "kept"
            raise JournalUnknownError("the line broke")

    def settle(self) -> bool:
        """See JournalWriter."""
        self.asked += 1
        if self._silent:
            self._silent -= 1
            raise JournalUnknownError("still no line")
        return self._was_kept


@dataclass
class Sender:
    """Sends the same entry again where it was refused, as an agent does."""

    done: list[tuple[int, str]] = field(default_factory=list)
    refused: int = 0
    full: list[str] = field(default_factory=list)
    writable: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        self.done += [(entry.seq, entry.body.decode()) for entry in entries]
        self.changed.set()

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        self.refused += len(entries)
        self.full.append(str(error))
        self.changed.set()

    def journal_writable(self) -> None:
        self.writable += 1
        self.changed.set()


def entry(name: str) -> JournalEntry:
    timer = TimerDue(name)
    return JournalEntry(1, codec.kind_of(timer), codec.encode(timer))


async def send(journal: GroupCommit, sender: Sender, name: str) -> None:
    while True:
        sender.changed.clear()
        try:
            journal.append(entry(name))
        except JournalFull:
            await sender.changed.wait()
        else:
            return


@pytest.mark.parametrize("seed", range(8))
def test_what_breaks_in_a_commit_is_kept_once_and_in_order(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    breaks = iter(chosen.choices(["-", "lost", "kept"], [2, 1, 1], k=40))
    silences = iter(chosen.choices([0, 1], [9, 1], k=40))
    opened: list[DistantJournal] = []

    def open_journal() -> JournalWriter:
        opened.append(DistantJournal(tmp_path / "j", breaks, silences))
        return opened[0]

    async def scenario() -> Sender:
        sender = Sender()
        journal = GroupCommit(open_journal, sender)
        journal.start(0)
        for number in range(60):
            await send(journal, sender, f"timer {number}")
            if chosen.random() < 0.5:
                sender.changed.clear()
                await sender.changed.wait()
        while len(sender.done) < 60:
            sender.changed.clear()
            await sender.changed.wait()
        await journal.stop()
        return sender

    sender = asyncio.run(scenario())
    assert opened[0].asked > 0, "no commit broke"
    assert sender.refused == 0
    assert sender.writable == len(sender.full)
    assert [seq for seq, _ in sender.done] == list(range(1, 61))
    store = SqliteJournal(tmp_path / "j", read_only=True)
    assert [(one.seq, one.body.decode()) for one in store.events(0)] == sender.done
    store.close()


def test_while_nobody_can_say_new_entries_are_refused_and_those_that_wait_are_not(
    tmp_path: Path,
) -> None:
    async def scenario() -> Sender:
        sender = Sender()
        path = tmp_path / "j"
        journal = GroupCommit(lambda: DistantJournal(path, iter(["kept"]), iter([2])), sender)
        journal.append(entry("first"))
        journal.start(0)
        while not sender.full:
            sender.changed.clear()
            await sender.changed.wait()
        assert journal.full is not None
        with pytest.raises(JournalFull, match="does not say what it has kept: still no line"):
            journal.append(entry("refused"))
        with pytest.raises(JournalFull, match="does not say what it has kept"):
            await journal.call(lambda store: store.marks())
        assert (sender.done, sender.refused) == ([], 0)
        while not sender.writable:
            sender.changed.clear()
            await sender.changed.wait()
        journal.append(entry("second"))
        await journal.stop()
        return sender

    sender = asyncio.run(scenario())
    assert [seq for seq, _ in sender.done] == [1, 2]


def test_a_call_whose_outcome_is_unknown_is_told_at_once_and_the_next_one_is_made(
    tmp_path: Path,
) -> None:
    async def scenario() -> bytes | None:
        path = tmp_path / "j"
        journal = GroupCommit(lambda: DistantJournal(path, iter(["lost"]), iter([])), Sender())
        journal.start(0)
        with pytest.raises(JournalFull, match="does not say whether it has kept this"):
            await journal.call(lambda store: store.set_fact("one", b"1"))
        await journal.call(lambda store: store.set_fact("two", b"2"))
        found = await journal.call(lambda store: (store.fact("one"), store.fact("two")))
        await journal.stop()
        assert found[0] is None
        return found[1]

    assert asyncio.run(scenario()) == b"2"


def test_a_controller_that_stops_while_nobody_can_say_leaves_its_senders_unanswered(
    tmp_path: Path,
) -> None:
    async def scenario() -> Sender:
        sender, path = Sender(), tmp_path / "j"
        journal = GroupCommit(lambda: DistantJournal(path, iter(["kept"]), iter([10**6])), sender)
        journal.append(entry("first"))
        journal.start(0)
        while not sender.full:
            sender.changed.clear()
            await sender.changed.wait()
        await asyncio.wait_for(journal.stop(), 20)
        return sender

    sender = asyncio.run(scenario())
    assert (sender.done, sender.refused) == ([], 0)


def test_a_writer_that_is_no_longer_the_one_ends_the_thread_with_its_sentence(
    tmp_path: Path,
) -> None:
    class Superseded(SqliteJournal):
        @contextmanager
        def transaction(self) -> Iterator[None]:
            yield
            raise JournalLostError("another controller writes this journal")

    async def scenario() -> None:
        sender = Sender()
        journal = GroupCommit(lambda: Superseded(tmp_path / "j"), sender)
        journal.append(entry("first"))
        journal.start(0)
        waiting = asyncio.create_task(journal.call(lambda store: store.marks()))
        try:
            await asyncio.wait_for(journal.failure, 20)
        finally:
            assert (sender.done, sender.refused) == ([], 0)
            for call in (waiting, journal.call(lambda store: store.marks())):
                with pytest.raises(JournalFull, match="the journal's thread has ended"):
                    await call
            await journal.stop()

    with pytest.raises(JournalLostError, match="another controller"):
        asyncio.run(scenario())


class SharedJournal(DistantJournal):
    """A journal that others may take from a writer that gives no sign."""

    beat_s = 1.0  # type: ignore[assignment]


def test_who_has_written_nothing_yet_is_not_sure_to_be_the_one_that_acts(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = GroupCommit(
            lambda: SharedJournal(tmp_path / "j", iter(["-"]), iter([])), sender := Sender()
        )
        acting = asyncio.create_task(journal.sure())
        await asyncio.sleep(0)
        assert not acting.done()
        journal.start(0)
        await send(journal, sender, "timer")
        await acting
        await journal.stop()

    asyncio.run(scenario())


def test_who_has_the_journal_alone_is_always_sure(tmp_path: Path) -> None:
    async def scenario() -> None:
        journal = GroupCommit(lambda: SqliteJournal(tmp_path / "j"), Sender())
        journal.start(0)
        await journal.sure()
        await journal.stop()

    asyncio.run(scenario())


class RefusingJournal(DistantJournal):
    """A journal that refuses the first write, and whose line breaks in the look whether it can."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, iter([]), iter([]))
        self.refused, self.broken = False, False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See JournalWriter."""
        self.begin()
        yield
        if self.refused:
            self.commit()
            return
        self.refused = True
        self.rollback()
        raise JournalWriteError("read-only")

    def probe(self) -> None:
        """See JournalWriter."""
        if not self.broken:
            self.broken, self._was_kept = True, True
            raise JournalUnknownError("the line broke")


def test_a_look_whose_outcome_is_unknown_stands_for_nothing_that_is_owed(tmp_path: Path) -> None:
    async def scenario() -> Sender:
        sender = Sender()
        journal = GroupCommit(lambda: RefusingJournal(tmp_path / "j"), sender)
        journal.start(0)
        await send(journal, sender, "refused")
        while not sender.refused:
            sender.changed.clear()
            await sender.changed.wait()
        journal.write(lambda store: store.set_fact("owed", b"kept"))
        await send(journal, sender, "kept")
        while not sender.done:
            sender.changed.clear()
            await sender.changed.wait()
        await journal.stop()
        return sender

    sender = asyncio.run(scenario())
    store = SqliteJournal(tmp_path / "j", read_only=True)
    assert store.fact("owed") == b"kept"
    assert [(one.seq, one.body.decode()) for one in store.events(0)] == sender.done
    store.close()
