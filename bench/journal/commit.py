"""Journal commit benchmark: acknowledged events a second, beside SQLite that is fed by hand.

Every event is answered on the event loop after its commit is durable, with a fixed number of them
on their way at once. The limit commits the same rows in transactions of that size: no thread, no
loop, no answers. Both write to the same folder, turn by turn.
"""

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.session import Benchmark, Part
from harness.table import Row, row

from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.sqlite.journal import SqliteJournal

# About a phase's event as it lies in the journal.
BODY = b"x" * 200


@dataclass
class Feeder:
    """Hands in a new entry for each that is answered; the user of the journal."""

    events: int
    journal: GroupCommit | None = None
    sent: int = 0
    answered: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self) -> None:
        """Hand in the next entry, if one is left."""
        if self.journal is not None and self.sent < self.events:
            self.sent += 1
            self.journal.append(JournalEntry(self.sent, "PhaseReached", BODY))

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        """See JournalUser."""
        self.answered += len(entries)
        for _ in entries:
            self.send()
        if self.answered == self.events:
            self.done.set()

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        """See JournalUser."""
        raise SystemExit(f"cannot measure: {error}")

    def journal_writable(self) -> None:
        """See JournalUser."""


async def through_the_thread(path: Path, events: int, in_flight: int) -> float:
    """Return acknowledged events a second."""
    feeder = Feeder(events)
    SqliteJournal(path).close()
    feeder.journal = journal = GroupCommit(lambda: SqliteJournal(path), feeder)
    journal.start(0)
    began = time.perf_counter()
    for _ in range(in_flight):
        feeder.send()
    await feeder.done.wait()
    spent_s = time.perf_counter() - began
    await journal.stop()
    return events / spent_s


def by_hand(path: Path, events: int, batch: int) -> float:
    """Return rows a second that plain SQLite commits in transactions of a size."""
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, at INT, kind TEXT, body BLOB)")
        began = time.perf_counter()
        for first in range(0, events, batch):
            rows = [(n, n, "PhaseReached", BODY) for n in range(first, min(first + batch, events))]
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
            db.execute("COMMIT")
        spent_s = time.perf_counter() - began
    db.close()
    return events / spent_s


def compare(folder: Path, in_flight: int, repeats: int) -> Iterator[Row]:
    """Measure both, turn by turn, for one number of events on their way."""
    events = min(20_000, 200 * in_flight)
    limit, thread = [], []
    for number in range(repeats):
        name = f"{in_flight}-{number}"
        limit.append(by_hand(folder / f"limit-{name}", events, in_flight))
        thread.append(
            asyncio.run(through_the_thread(folder / f"journal-{name}", events, in_flight))
        )
    bare = row(f"SQLite by hand, {in_flight} a transaction", limit, "rows/s")
    yield bare
    yield row(f"journal, {in_flight} on their way", thread, "events/s", bare)


def measure(options: argparse.Namespace, in_flight: int) -> Iterator[Row]:
    """Measure both on one disk."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-", dir=options.folder) as folder:
        yield from compare(Path(folder), in_flight, options.repeats)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(str(n), 10.0, partial(measure, in_flight=n)) for n in (1, 10, 100, 1000)],
    repeats=5,
    add_options=lambda parser: parser.add_argument(
        "--folder", type=Path, help="on the disk to measure; temporary otherwise"
    ),
)
