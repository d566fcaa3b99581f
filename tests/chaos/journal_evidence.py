"""What the database has at the end of a run, and who wrote it: read from a journal in PostgreSQL.

Triggers note which connection wrote each event and who took the lease: the journal itself does not
tell, and a controller is not asked to bear witness of itself.
"""

from collections.abc import Iterator
from contextlib import closing

import psycopg

from chaos.evidence import ChainEnds, EventRow, RecordKey, Taking, WrittenRow
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import EventBatch, RanksExited, Reported
from everstep_controller.core.model.node import Origin
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.journal import PostgresBackend
from everstep_controller.journal.postgres.pending_writes import unpacked
from everstep_controller.journal.postgres.surroundings import surroundings
from everstep_controller.replay import Comparison, replay
from fakes.postgres_server import PostgresServer

_WITNESS = """
create schema if not exists witness;
create table if not exists witness.written (
    at bigserial primary key, seq bigint not null, writer text not null
);
create table if not exists witness.taken (
    at bigserial primary key, term bigint not null, holder text not null
);
create or replace function witness.note_event() returns trigger language plpgsql as $$
begin
    insert into witness.written (seq, writer) values
        (new.seq, substring(current_setting('application_name') from ' ([0-9a-f]+)$'));
    return null;
end $$;
create or replace function witness.note_lease() returns trigger language plpgsql as $$
begin
    insert into witness.taken (term, holder) values (new.term, new.holder);
    return null;
end $$;
create or replace trigger witness after insert on everstep.event
    for each row execute function witness.note_event();
create or replace trigger witness after update on everstep.lease
    for each row when (old.term <> new.term or old.holder <> new.holder)
    execute function witness.note_lease();
"""


class JournalWitness:
    """Witness of a journal in a database; the schema is there since its first controller began."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server, self._database = server, database
        # What was written before the triggers were there is nobody's.
        self._since = 0

    def begin(self) -> None:
        """Have the database note from now on who writes. The first term is known by its row."""
        self._server.execute(_WITNESS, database=self._database)
        term, holder = self._ask("select term, holder from everstep.lease")[0]
        self._server.execute(
            "insert into witness.taken (term, holder) values (%s, %s)",
            (term, holder),
            database=self._database,
        )

    def _ask(self, statement: str) -> list[tuple[object, ...]]:
        return self._server.execute(statement, database=self._database)

    def rows(self) -> Iterator[EventRow]:
        """Yield all events."""
        with psycopg.connect(self._server.url(self._database)) as connection:
            found = connection.execute(
                "select seq, now_ns, kind, body, link from everstep.event order by seq"
            )
            for seq, now_ns, kind, body, link in found:
                yield EventRow(seq, now_ns, kind, unpacked(bytes(body)), bytes(link))

    def ends(self) -> ChainEnds:
        """Return where they begin and end."""
        ((base_seq, base_link, head, link),) = self._server.execute(
            "select base_seq, base_link, head, link from everstep.lease", database=self._database
        )
        return ChainEnds(base_seq, bytes(base_link), head, bytes(link))

    def written(self) -> list[WrittenRow]:
        """Return who wrote which event, in the order of writing."""
        found = self._ask("select seq, writer from witness.written order by at")
        return [WrittenRow(int(str(seq)), str(writer)) for seq, writer in found]

    def takings(self) -> list[Taking]:
        """Return each change of the lease's holder."""
        found = self._ask(
            "select term, coalesce(substring(holder from '^\\[\"([0-9a-f]+)\"'), '') "
            "from witness.taken order by at"
        )
        return [Taking(int(str(term)), str(writer)) for term, writer in found]

    def replay(self) -> Comparison:
        """Return what a replay of it comes to."""
        place = Place(self._server.url(self._database))
        return replay(PostgresBackend(place, surroundings()), Core)

    def recorded_events(self) -> Iterator[RecordKey]:
        """Yield of which record each event was made."""
        place = Place(self._server.url(self._database))
        backend = PostgresBackend(place, surroundings())
        with closing(backend.open_reader()) as reader:
            for stored in reader.events(0):
                event = decode_event(stored.kind, stored.body)
                parts = event.events if isinstance(event, EventBatch) else (event,)
                for one in parts:
                    if isinstance(one, Reported | RanksExited):
                        yield _key(one.origin)


def _key(origin: Origin) -> RecordKey:
    return RecordKey(origin.outbox, origin.sequence)
