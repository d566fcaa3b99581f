"""The tables of the journal, and the numbered steps that lead an older file to them."""

import sqlite3

_V1 = """
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

# Append only: a migration that was released is never changed.
MIGRATIONS: tuple[str, ...] = (_V1,)


class SchemaError(Exception):
    """The file was written by a newer version of the controller."""


def migrate(db: sqlite3.Connection) -> None:
    """Bring the file to the newest schema. Raises SchemaError for one from the future."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise SchemaError(
            f"the journal has schema {version}, this controller knows {len(MIGRATIONS)}: "
            "start the newer controller that wrote it"
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
