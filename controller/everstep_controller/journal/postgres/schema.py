"""Schema of a journal in PostgreSQL: its tables, and the numbered migrations that lead to them.

It is a schema named ``everstep`` in a database: one journal has one database.
"""

import psycopg

from everstep_controller.journal.checksums import BEGINNING, checksum
from everstep_controller.journal.port import JournalAccessError, JournalRefusedError
from everstep_controller.journal.postgres.connection import DeadlineConnection, sentence

# The row of the lease says who may write, and how far the journal goes.
# ``beat`` counts statements of a holder, ``writes`` those of its transactions.
_V1 = """
create schema everstep;
create table everstep.lease (
    one boolean primary key default true check (one),
    schema_version int not null,
    journal text not null,
    term bigint not null,
    holder text not null,
    beat bigint not null,
    writes bigint not null,
    head bigint not null,
    link bytea not null,
    base_seq bigint not null,
    base_link bytea not null,
    checksum bytea not null
);
create table everstep.observer (id text primary key, looks bigint not null);
create table everstep.event (
    seq bigint primary key, now_ns bigint not null, kind text not null, body bytea not null,
    link bytea not null
);
create table everstep.decision (
    seq bigint primary key, actions bytea not null, checksum bytea not null
);
create table everstep.rejection (
    seq bigint primary key, error text not null, alone text, checksum bytea not null
);
create table everstep.snapshot (
    seq bigint primary key, now_ns bigint not null, version text not null, state bytea not null,
    checksum bytea not null
);
create table everstep.announcement (
    id bigint primary key, seq bigint not null, at_ns bigint not null, subject text not null,
    reason text not null, message text not null, checksum bytea not null
);
create index announcement_by_subject on everstep.announcement (subject, id);
create table everstep.about (id bigint primary key, about bytea not null, checksum bytea not null);
create table everstep.mark (
    outbox text primary key, node text not null, sequence bigint not null, checksum bytea not null
);
create table everstep.fact (name text primary key, value bytea not null, checksum bytea not null);
create table everstep.history (
    kind text not null, key text collate "C" not null, begin_ns bigint not null,
    at_ns bigint not null, content bytea not null, checksum bytea not null,
    primary key (kind, key, begin_ns)
);
create index history_by_time on everstep.history (kind, begin_ns);
"""

# What controllers say of themselves: the one that writes, and those that look on. Ages are by the
# clock of the server alone.
_V2 = """
alter table everstep.lease add column told text not null default '';
alter table everstep.lease add column taken_at timestamptz not null default clock_timestamp();
alter table everstep.observer add column told text not null default '';
alter table everstep.observer add column since timestamptz not null default clock_timestamp();
alter table everstep.observer add column seen_at timestamptz not null default clock_timestamp();
"""

# Append only: a migration that was released is never changed.
MIGRATIONS: tuple[str, ...] = (_V1, _V2)
# From this one on a standby finds what it needs.
WITH_STANDBYS = 2
NEWEST = len(MIGRATIONS)
# Any number that no other program takes for a lock in this database.
_MIGRATING = 0x6576657273746570
_NEW_LEASE = (
    "insert into everstep.lease (one, schema_version, journal, term, holder, beat, writes, head, "
    "link, base_seq, base_link, checksum) "
    "values (true, %s, gen_random_uuid()::text, 0, '', 0, 0, 0, %s, 0, %s, %s)"
)


def migrate(connection: DeadlineConnection) -> None:
    """Bring the database to the newest schema. JournalRefusedError, JournalAccessError."""
    try:
        if known_version(connection) == NEWEST:
            return
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", (_MIGRATING,))
            done = known_version(connection)
            for script in MIGRATIONS[done:]:
                connection.execute(script.encode())
            if done == 0:
                row = checksum(0, BEGINNING, 0, BEGINNING)
                connection.execute(_NEW_LEASE, (NEWEST, BEGINNING, BEGINNING, row))
            connection.execute("update everstep.lease set schema_version = %s", (NEWEST,))
    except psycopg.errors.InsufficientPrivilege as error:
        raise JournalRefusedError(
            f"{sentence(error)}: the database has to be its user's own, as after "
            "'createdb --owner USER DATABASE'; what is there: 'alter database DATABASE owner to "
            "USER', and in it 'reassign owned by OTHER to USER' where another user made the journal"
        ) from error
    except psycopg.Error as error:
        raise JournalAccessError(sentence(error)) from error


def known_version(connection: DeadlineConnection) -> int:
    """Return the schema of the database; 0 for none. Raises JournalRefusedError."""
    # From the table itself: to_regnamespace may answer from a cache that is older than the lock.
    found = connection.execute(
        "select exists (select from pg_catalog.pg_namespace where nspname = 'everstep'), "
        "to_regclass('everstep.lease') is not null"
    ).fetchone()
    if found is None or not found[0]:
        return 0
    row = None
    if found[1]:
        row = connection.execute("select schema_version from everstep.lease").fetchone()
    if row is None:
        raise JournalRefusedError(
            "the database has a schema 'everstep' without the row that says who writes the "
            "journal: put the database back from a backup; where nothing of it is needed, 'drop "
            "schema everstep cascade' and run 'everstep-controller recover', which rebuilds it "
            "from the agents"
        )
    version = int(row[0])
    if version > NEWEST:
        raise JournalRefusedError(
            f"the journal has schema {version}, this controller knows {NEWEST}: start the newer "
            "controller that wrote it"
        )
    return version
