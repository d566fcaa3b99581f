"""Journal schema: the tables, and the numbered migrations that bring an older file to them."""

import sqlite3
from collections.abc import Mapping

from everstep_controller.journal.checksums import checksum
from everstep_controller.journal.port import DamagedJournalError, JournalRefusedError

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

# Events that were written before have no link: the chain begins after them.
_V4 = """
ALTER TABLE event ADD COLUMN link BLOB;
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, link BLOB NOT NULL,
    base_seq INTEGER NOT NULL, base_link BLOB NOT NULL, checksum BLOB NOT NULL
) STRICT;
INSERT INTO head SELECT 1, seq, x'', seq, x'', checksum(seq, x'', seq, x'')
    FROM (SELECT coalesce(max(seq), 0) AS seq FROM event);
ALTER TABLE decision ADD COLUMN checksum BLOB;
UPDATE decision SET checksum = checksum(seq, actions);
ALTER TABLE rejection ADD COLUMN checksum BLOB;
UPDATE rejection SET checksum = checksum(seq, error, alone);
ALTER TABLE snapshot ADD COLUMN checksum BLOB;
UPDATE snapshot SET checksum = checksum(seq, now_ns, version, state);
ALTER TABLE announcement ADD COLUMN checksum BLOB;
UPDATE announcement SET checksum = checksum(id, seq, at_ns, subject, reason, message);
ALTER TABLE mark ADD COLUMN checksum BLOB;
UPDATE mark SET checksum = checksum(outbox, node, sequence);
ALTER TABLE fact ADD COLUMN checksum BLOB;
UPDATE fact SET checksum = checksum(name, value);
ALTER TABLE ledger ADD COLUMN checksum BLOB;
UPDATE ledger SET checksum = checksum(job, at_ns, totals);
"""

_V5 = """
CREATE TABLE about (
    id INTEGER PRIMARY KEY, about BLOB NOT NULL, checksum BLOB NOT NULL
) STRICT;
"""

# Ledgers of jobs were sums by the time at which they were written down, and are by hour now.
_V6 = """
CREATE TABLE history (
    kind TEXT NOT NULL, key TEXT NOT NULL, begin_ns INTEGER NOT NULL, at_ns INTEGER NOT NULL,
    content BLOB NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (kind, key, begin_ns)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_by_time ON history (kind, begin_ns);
INSERT INTO history
    SELECT 'job-hour', job, begin_ns, at_ns, content,
        checksum('job-hour', job, begin_ns, at_ns, content)
    FROM (
        SELECT job, max(at_ns) AS at_ns, at_ns - at_ns % 3600000000000 AS begin_ns,
            CAST(json_object(
                'totals', json_remove(CAST(totals AS TEXT), '$.nodes', '$.failures'),
                'nodes', coalesce(json_extract(CAST(totals AS TEXT), '$.nodes'), 1),
                'failures', coalesce(json_extract(CAST(totals AS TEXT), '$.failures'), 0)
            ) AS BLOB) AS content
        FROM ledger WHERE checksum IS checksum(job, at_ns, totals)
        GROUP BY job, at_ns - at_ns % 3600000000000
    );
DROP TABLE ledger;
"""

# The first format that is read: the events and the state of those before it had other fields.
FIRST = 2
# Append only: a migration that was released is never changed.
MIGRATIONS: tuple[str, ...] = (_V2, _V3, _V4, _V5, _V6)
_NEWEST = FIRST + len(MIGRATIONS) - 1

# How a connection that may not migrate a file reads one without checksums.
_UNCHECKED: Mapping[str, str] = {
    "event": "SELECT *, NULL AS link FROM main.event",
    "head": "SELECT 1 AS one, seq, x'' AS link, seq AS base_seq, x'' AS base_link, "
    "checksum(seq, x'', seq, x'') AS checksum "
    "FROM (SELECT coalesce(max(seq), 0) AS seq FROM main.event)",
    "decision": "SELECT *, checksum(seq, actions) AS checksum FROM main.decision",
    "snapshot": "SELECT *, checksum(seq, now_ns, version, state) AS checksum FROM main.snapshot",
}
_REJECTIONS: Mapping[int, str] = {
    2: "SELECT *, NULL AS alone, checksum(seq, error, NULL) AS checksum FROM main.rejection",
    3: "SELECT *, checksum(seq, error, alone) AS checksum FROM main.rejection",
}
# The last format without checksums; and how one is read that does not say what lines are about.
_LAST_UNCHECKED = 3
_NO_ABOUT = "SELECT 0 AS id, x'' AS about, x'' AS checksum WHERE FALSE"
_LAST_WITHOUT_ABOUT = 4
# Who replays a journal reads no history.
_NO_HISTORY = (
    "SELECT '' AS kind, '' AS key, 0 AS begin_ns, 0 AS at_ns, x'' AS content, x'' AS checksum "
    "WHERE FALSE"
)


class SchemaError(JournalRefusedError):
    """The file was written by a version of the controller whose journals this one cannot read."""


def add_functions(db: sqlite3.Connection) -> None:
    """Give a connection the function that the statements here and in the store use."""
    db.create_function("checksum", -1, checksum, deterministic=True)


def migrate(db: sqlite3.Connection) -> None:
    """Bring the file to the newest schema. Raises SchemaError for one that cannot be read."""
    done = max(0, _known_version(db) - FIRST + 1)
    for number, script in enumerate(MIGRATIONS[done:], start=FIRST + done):
        db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


def view_as_newest(db: sqlite3.Connection) -> None:
    """Have an older file look like the newest schema, for who replays it. Raises SchemaError."""
    version = _known_version(db)
    if FIRST <= version <= _LAST_UNCHECKED:
        for name, query in {**_UNCHECKED, "rejection": _REJECTIONS[version]}.items():
            db.execute(f"CREATE TEMP VIEW {name} AS {query}")
    if FIRST <= version <= _LAST_WITHOUT_ABOUT:
        db.execute(f"CREATE TEMP VIEW about AS {_NO_ABOUT}")
    if FIRST <= version < _NEWEST:
        db.execute(f"CREATE TEMP VIEW history AS {_NO_HISTORY}")


def _known_version(db: sqlite3.Connection) -> int:
    """Return the schema of the file; 0 for a new one. SchemaError, DamagedJournalError."""
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
    if version == 0 and db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None:
        raise DamagedJournalError("it has tables, and says of none of them what schema they have")
    return int(version)
