"""Journal schema: the tables, and the numbered migrations that bring an older file to them."""

import sqlite3

_V2 = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY, now_ns INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE decision (seq INTEGER PRIMARY KEY, actions BLOB NOT NULL) STRICT;
CREATE TABLE rejection (seq INTEGER PRIMARY KEY, error TEXT NOT NULL) STRICT;
CREATE TABLE snapshot (
    seq INTEGER PRIMARY KEY, now_ns INTEGER NOT NULL, version TEXT NOT NULL, state BLOB NOT NULL
) STRICT;
CREATE TABLE announcement (
    id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, at_ns INTEGER NOT NULL,
    subject TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
CREATE INDEX announcement_by_subject ON announcement (subject, id);
CREATE TABLE mark (outbox TEXT PRIMARY KEY, node TEXT NOT NULL, sequence INTEGER NOT NULL) STRICT;
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE ledger (
    job TEXT NOT NULL, at_ns INTEGER NOT NULL, totals BLOB NOT NULL, PRIMARY KEY (job, at_ns)
) STRICT;
"""

_V3 = """
ALTER TABLE rejection ADD COLUMN alone TEXT;
"""

# The first format that is read: the events and the state of those before it had other fields.
FIRST = 2
# Append only: a migration that was released is never changed.
MIGRATIONS: tuple[str, ...] = (_V2, _V3)
_NEWEST = FIRST + len(MIGRATIONS) - 1


class SchemaError(Exception):
    """The file was written by a version of the controller whose journals this one cannot read."""


def migrate(db: sqlite3.Connection) -> None:
    """Bring the file to the newest schema. Raises SchemaError for one that cannot be read."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > _NEWEST:
        raise SchemaError(
            f"the journal has schema {version}, this controller knows {_NEWEST}: "
            "start the newer controller that wrote it"
        )
    if 0 < version < FIRST:
        raise SchemaError(
            f"the journal has schema {version}, and {FIRST} is the oldest that this controller "
            "reads: move the file away and run 'everstep-controller recover', which rebuilds it "
            "from the agents"
        )
    done = max(0, version - FIRST + 1)
    for number, script in enumerate(MIGRATIONS[done:], start=FIRST + done):
        db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
