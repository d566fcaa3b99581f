"""Reads of the journal while its controller serves: in one thread, with a deadline."""

import asyncio
import threading
from pathlib import Path

import pytest

from everstep_controller.journal.port import JournalAccessError, JournalReader
from everstep_controller.journal.reading import JournalReads
from everstep_controller.journal.sqlite.journal import SqliteJournal


def opened(path: Path) -> JournalReader:
    SqliteJournal(path).close()
    return SqliteJournal(path, read_only=True)


def test_a_read_is_answered_by_a_thread_that_keeps_its_connection(tmp_path: Path) -> None:
    threads = set[int]()

    def last(reader: JournalReader) -> tuple[int, int]:
        threads.add(threading.get_ident())
        return reader.last()

    async def scenario() -> list[tuple[int, int]]:
        reads = JournalReads(lambda: opened(tmp_path / "j"))
        found = [await reads.ask(last) for _ in range(3)]
        await reads.close()
        return found

    assert asyncio.run(scenario()) == [(0, 0)] * 3
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_journal_that_hangs_holds_up_whoever_asks_for_the_deadline_and_nobody_else(
    tmp_path: Path,
) -> None:
    answers = threading.Event()

    def hang(reader: JournalReader) -> int:
        answers.wait(60)
        return 1

    async def scenario() -> tuple[int, int]:
        reads = JournalReads(lambda: opened(tmp_path / "j"), deadline_s=0.05)
        with pytest.raises(JournalAccessError, match=r"has not answered for 0\.05 s"):
            await reads.ask(hang)
        with pytest.raises(JournalAccessError, match="has not answered"):
            await reads.ask(lambda reader: reader.last())
        answers.set()
        patient = JournalReads(lambda: opened(tmp_path / "j"))
        found = await patient.ask(lambda reader: reader.last())
        await patient.close()
        await reads.close()
        return found

    assert asyncio.run(scenario()) == (0, 0)
