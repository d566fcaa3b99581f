"""Journals of both kinds for the suite that both have to pass: a file, and a real database."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_controller.core.events import ControllerStarted
from everstep_controller.journal import codec
from everstep_controller.journal.lease import Process
from everstep_controller.journal.port import JournalBackend, JournalWriter, StoredEvent
from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.journal import PostgresBackend
from everstep_controller.journal.postgres.surroundings import surroundings
from everstep_controller.journal.sqlite.journal import SqliteBackend
from fakes.postgres_server import PostgresServer


@dataclass(frozen=True)
class JournalPlace:
    """A place of a journal, and how a test changes a row of it behind the controller's back."""

    backend: JournalBackend
    execute: Callable[[str], object]
    # How a table and bytes are written there.
    table: Callable[[str], str]
    bytes_of: Callable[[str], str]

    @contextmanager
    def writer(self) -> Iterator[JournalWriter]:
        """Open it for writing, as the holder of its lock."""
        with self.backend.lock(), closing(self.backend.open_writer()) as store:
            yield store


def sqlite_place(folder: Path) -> JournalPlace:
    """Return a journal in a file."""
    import sqlite3

    path = folder / "journal.sqlite"

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return JournalPlace(SqliteBackend(path), execute, str, lambda text: f"x'{text}'")


def postgres_backend(
    server: PostgresServer, database: str, deadline_s: float = 12.0
) -> PostgresBackend:
    """Return a journal in a database of a server."""
    return PostgresBackend(Place(server.url(database), None, deadline_s), surroundings())


def elsewhere(backend: PostgresBackend) -> PostgresBackend:
    """Return the same journal as a process of another machine sees it."""
    there = Process("machine-2", "another boot", 4711, 1)
    around = replace(
        backend.around, process=there, lives=lambda one: True if one == there else None
    )
    return PostgresBackend(backend.place, around)


def postgres_place(server: PostgresServer) -> JournalPlace:
    """Return a journal in a new database of a server."""
    database = server.new_database()
    return JournalPlace(
        postgres_backend(server, database),
        lambda statement: server.execute(statement, database=database),
        lambda table: f"everstep.{table}",
        lambda text: f"'\\x{text}'",
    )


def event(seq: int, now_ns: int | None = None) -> StoredEvent:
    """Return an event with a number."""
    started = ControllerStarted(str(seq))
    at_ns = seq if now_ns is None else now_ns
    return StoredEvent(seq, at_ns, codec.kind_of(started), codec.encode(started))


def long_event(seq: int) -> StoredEvent:
    """Return an event with a body that is worth compressing."""
    return replace(event(seq), body=codec.encode(ControllerStarted("x" * 5000)))
