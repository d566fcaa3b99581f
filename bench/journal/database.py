"""Journal database benchmark: what a journal in PostgreSQL acknowledges, beside one in a file.

Events go through the journal's thread, each is answered on the event loop after its commit is
durable, with a fixed number of them on their way at once. File and database, of a server that is
started for it with its own defaults (fsync on), are on one disk and measured turn by turn: events a
second, and the time from handing an event in to its answer that 99 % do not exceed.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.session import Benchmark, Part
from harness.table import Row, row

from everstep_controller.journal.group_commit import GroupCommit, JournalEntry, JournalFull
from everstep_controller.journal.port import JournalBackend
from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.journal import PostgresBackend
from everstep_controller.journal.postgres.surroundings import surroundings
from everstep_controller.journal.sqlite.journal import SqliteBackend
from fakes.postgres_server import PostgresServer, postgres_server

# About a phase's event as it lies in the journal.
BODY = json.dumps({"job": "train", "phase": "step", "detail": "0123456789abcdef" * 9}).encode()
_EVENTS_MAX = 20_000


@dataclass
class Feeder:
    """Hands in a new entry for each that is answered; the user of the journal."""

    events: int
    journal: GroupCommit | None = None
    sent_s: dict[int, float] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self) -> None:
        """Hand in the next entry, if one is left."""
        if self.journal is not None and len(self.sent_s) < self.events:
            number = len(self.sent_s) + 1
            self.sent_s[number] = time.perf_counter()
            self.journal.append(JournalEntry(number, "PhaseReached", BODY))

    def journaled(self, entries: Sequence[JournalEntry]) -> None:
        """See JournalUser."""
        now_s = time.perf_counter()
        self.took_s += [now_s - self.sent_s[entry.now_ns] for entry in entries]
        for _ in entries:
            self.send()
        if len(self.took_s) == self.events:
            self.done.set()

    def not_journaled(self, entries: Sequence[JournalEntry], error: JournalFull) -> None:
        """See JournalUser."""
        raise SystemExit(f"cannot measure: {error}")

    def journal_writable(self) -> None:
        """See JournalUser."""


@dataclass(frozen=True)
class Figures:
    """Events that were acknowledged a second, and milliseconds that 99 % of them took at most."""

    per_second: float
    p99_ms: float


async def feed(backend: JournalBackend, events: int, in_flight: int) -> Figures:
    """Return the figures of a journal, which is new."""
    feeder = Feeder(events)
    feeder.journal = journal = GroupCommit(backend.open_writer, feeder)
    journal.start(0)
    began_s = time.perf_counter()
    for _ in range(in_flight):
        feeder.send()
    await feeder.done.wait()
    spent_s = time.perf_counter() - began_s
    await journal.stop()
    ordered = sorted(feeder.took_s)
    return Figures(events / spent_s, ordered[len(ordered) * 99 // 100] * 1000)


def figures(backend: JournalBackend, events: int, in_flight: int) -> Figures:
    """Make a journal, and return its figures."""
    with backend.lock():
        with closing(backend.open_writer()):
            pass
        return asyncio.run(feed(backend, events, in_flight))


def measure(options: argparse.Namespace, in_flight: int) -> Iterator[Row]:
    """Measure both, turn by turn, for one number of events on their way."""
    durable = ("fsync=on", "full_page_writes=on")
    with (
        TemporaryDirectory(prefix="everstep-bench-") as folder,
        postgres_server(*durable) as server,
    ):
        yield from compare(Path(folder), server, in_flight, options.repeats)


def compare(folder: Path, server: PostgresServer, in_flight: int, repeats: int) -> Iterator[Row]:
    """Yield the rows of both."""
    events = min(_EVENTS_MAX, 200 * in_flight)
    file, database = list[Figures](), list[Figures]()
    for number in range(repeats):
        path = folder / f"journal-{number}"
        file.append(figures(SqliteBackend(path), events, in_flight))
        place = Place(server.url(server.new_database()))
        database.append(figures(PostgresBackend(place, surroundings()), events, in_flight))
    told: list[tuple[str, str, Callable[[Figures], float]]] = [
        ("acknowledged", "events/s", lambda one: one.per_second),
        ("99 % acknowledged within", "ms", lambda one: one.p99_ms),
    ]
    for what, unit, of in told:
        bare = row(f"file, {in_flight} on their way: {what}", [of(one) for one in file], unit)
        yield bare
        name = f"database, {in_flight} on their way: {what}"
        yield row(name, [of(one) for one in database], unit, bare)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part(str(n), 20.0, partial(measure, in_flight=n)) for n in (1, 10, 100, 1000)],
    repeats=5,
)
