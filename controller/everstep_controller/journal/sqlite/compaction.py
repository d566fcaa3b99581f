"""Journal compaction: deletes old events once a snapshot holds what they led to."""

from collections.abc import Iterable

from everstep_controller.journal.retention import needed_snapshots
from everstep_controller.journal.sqlite.store import JournalStore


def compact(store: JournalStore, events_before_ns: int, announcements_before_ns: int) -> int:
    """Delete what is older, as far as kept snapshots stand for it; return the deleted events."""
    prune_snapshots(store, events_before_ns)
    oldest = store.oldest_snapshot()
    through = oldest.seq if oldest is not None else 0
    deleted = store.delete_events(through, events_before_ns)
    for table in ("decision", "rejection"):
        store.execute(
            f"DELETE FROM {table} WHERE seq < (SELECT coalesce(min(seq), ?) FROM event)", (through,)
        )
    store.execute("DELETE FROM announcement WHERE at_ns < ?", (announcements_before_ns,))
    store.execute("DELETE FROM about WHERE id < (SELECT min(id) FROM announcement)")
    return deleted


def prune_snapshots(store: JournalStore, events_before_ns: int) -> int:
    """Delete the snapshots that nobody needs; return how many."""
    taken = store.snapshots_taken()
    needed = needed_snapshots(taken, events_before_ns)
    gone = [(seq,) for seq, _ in taken if seq not in needed]
    return sum(store.execute("DELETE FROM snapshot WHERE seq = ?", one) for one in gone)


def forget_outboxes(store: JournalStore, replaced: Iterable[str]) -> None:
    """Delete the marks of outboxes that their nodes have replaced."""
    for outbox in replaced:
        store.execute("DELETE FROM mark WHERE outbox = ?", (outbox,))
