"""History in an SQLite journal: a row of each thing and time, which outlives events and state."""

import logging
from collections.abc import Iterable, Iterator

from everstep_controller.journal.port import DAY_NS, HistoryKind, HistoryRange, HistoryRow
from everstep_controller.journal.sound_rows import sound_history
from everstep_controller.journal.sqlite.store import JournalStore

logger = logging.getLogger(__name__)

_ROW = "kind, key, begin_ns, at_ns, content"
_ASKED = "kind = ?1 AND begin_ns >= ?2 AND begin_ns < ?3"

# Of sums that go on from row to row the last of a day tells the day.
_LAST_OF_DAYS = f"""
SELECT kind, history.key, begin_ns, at_ns, content, checksum FROM (
    SELECT key, max(begin_ns) AS newest_ns FROM history WHERE {_ASKED}
    GROUP BY key, begin_ns / {DAY_NS}
) AS asked JOIN history ON kind = ?1 AND history.key = asked.key AND begin_ns = newest_ns
ORDER BY 2, 3
"""
# What went before is what the first row of a range is compared with.
_BEFORE = f"""
SELECT kind, history.key, begin_ns, at_ns, content, checksum
FROM (SELECT DISTINCT key FROM history WHERE {_ASKED}) AS asked
JOIN history ON kind = ?1 AND history.key = asked.key AND begin_ns = (
    SELECT max(begin_ns) FROM history AS before
    WHERE before.kind = ?1 AND before.key = asked.key AND before.begin_ns < ?2
)
"""


def save_history(store: JournalStore, rows: Iterable[HistoryRow]) -> None:
    """See JournalWriter."""
    for row in rows:
        if row.kind is HistoryKind.INCIDENT:
            place = (row.kind.value, row.key, row.begin_ns)
            store.execute("DELETE FROM history WHERE kind = ? AND key = ? AND begin_ns <> ?", place)
        store.execute(
            "INSERT OR REPLACE INTO history VALUES (?1, ?2, ?3, ?4, ?5, "
            "checksum(?1, ?2, ?3, ?4, ?5))",
            (row.kind.value, row.key, row.begin_ns, row.at_ns, row.content),
        )


def history(store: JournalStore, asked: HistoryRange) -> Iterator[HistoryRow]:
    """See JournalReader."""
    values = (asked.kind.value, asked.since_ns, asked.until_ns)
    if asked.key:
        statement = f"SELECT {_ROW}, checksum FROM history WHERE {_ASKED} AND key = ?4 ORDER BY 3"
        yield from sound_history(store.query(statement, (*values, asked.key)))
        return
    statement = f"SELECT {_ROW}, checksum FROM history WHERE {_ASKED} ORDER BY key, begin_ns"
    yield from sound_history(
        store.query(_LAST_OF_DAYS if asked.last_of_days else statement, values)
    )


def history_before(store: JournalStore, asked: HistoryRange) -> dict[str, HistoryRow]:
    """See JournalReader."""
    rows = store.query(_BEFORE, (asked.kind.value, asked.since_ns, asked.until_ns))
    return {row.key: row for row in sound_history(rows)}


def history_keys(store: JournalStore, asked: HistoryRange, limit: int) -> list[str]:
    """See JournalReader."""
    statement = f"SELECT DISTINCT key FROM history WHERE {_ASKED} ORDER BY key LIMIT ?4"
    values = (asked.kind.value, asked.since_ns, asked.until_ns, limit)
    return [str(key) for (key,) in store.query(statement, values)]


def history_span(store: JournalStore, kind: HistoryKind) -> tuple[int, int]:
    """See JournalReader."""
    # Each of the two is one look into the index; asked for together they are a scan.
    statement = "SELECT {}(begin_ns) FROM history WHERE kind = ?"
    (first,), (last,) = (
        next(store.query(statement.format(end), (kind.value,))) for end in ("min", "max")
    )
    return first or 0, last or 0


def forget_history(store: JournalStore, before_ns: int) -> None:
    """Delete rows that are older; of sums that go on, the last one before is kept."""
    store.execute(
        "DELETE FROM history WHERE begin_ns < ?1 AND kind <> ?2",
        (before_ns, HistoryKind.JOB_HOUR.value),
    )
    store.execute(
        "DELETE FROM history AS old WHERE begin_ns < ?1 AND kind = ?2 AND ("
        "begin_ns < (SELECT max(begin_ns) FROM history WHERE kind = ?2 AND key = old.key AND "
        "begin_ns < ?1) OR NOT EXISTS (SELECT 1 FROM history WHERE kind = ?2 AND key = old.key "
        "AND begin_ns >= ?1))",
        (before_ns, HistoryKind.JOB_HOUR.value),
    )
