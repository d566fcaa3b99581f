"""Journal compaction: deletes old events once a snapshot holds what they led to."""

import json
from collections.abc import Iterable, Mapping

from everstep_controller.journal.store import JournalStore

# A snapshot that cannot be read must not cost the state: the one before it is kept, with its tail.
SNAPSHOTS_KEPT = 2
_DAY_NS = 86_400_000_000_000


def compact(store: JournalStore, events_before_ns: int, announcements_before_ns: int) -> int:
    """Delete what is older, as far as kept snapshots stand for it; return the deleted events."""
    prune_snapshots(store, events_before_ns)
    oldest = store.oldest_snapshot()
    through = oldest.seq if oldest is not None else 0
    deleted = store.execute(
        "DELETE FROM event WHERE seq <= ? AND now_ns < ?", (through, events_before_ns)
    )
    for table in ("decision", "rejection"):
        store.execute(
            f"DELETE FROM {table} WHERE seq < (SELECT coalesce(min(seq), ?) FROM event)", (through,)
        )
    store.execute("DELETE FROM announcement WHERE at_ns < ?", (announcements_before_ns,))
    return deleted


def prune_snapshots(store: JournalStore, events_before_ns: int) -> int:
    """Delete the snapshots that nobody needs; return how many.

    The newest are needed by the next start, and the first of each day by a replay: it begins with
    the oldest one, which stands for the events before it when they are deleted.
    """
    return store.execute(
        "DELETE FROM snapshot WHERE seq NOT IN "
        "(SELECT seq FROM snapshot ORDER BY seq DESC LIMIT ?) AND (now_ns < ? OR seq NOT IN "
        "(SELECT min(seq) FROM snapshot GROUP BY now_ns / ?))",
        (SNAPSHOTS_KEPT, events_before_ns, _DAY_NS),
    )


def forget_outboxes(store: JournalStore, replaced: Iterable[str]) -> None:
    """Delete the marks of outboxes that their nodes have replaced."""
    for outbox in replaced:
        store.execute("DELETE FROM mark WHERE outbox = ?", (outbox,))


def save_ledger(store: JournalStore, job_id: str, at_ns: int, totals: Mapping[str, int]) -> None:
    """Keep the totals of a job's ledger: they outlive the job's place in the state."""
    store.execute(
        "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?)",
        (job_id, at_ns, json.dumps(totals, sort_keys=True).encode()),
    )


def probe(store: JournalStore) -> None:
    """Write and remove a row that needs new pages. Raises sqlite3.Error while there is no space."""
    store.begin()
    store.execute("INSERT OR REPLACE INTO fact VALUES ('probe', zeroblob(65536))")
    store.commit()
    store.begin()
    store.execute("DELETE FROM fact WHERE name = 'probe'")
    store.commit()
