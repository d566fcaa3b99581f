"""Journal compaction: deletes old events once a snapshot holds what they led to."""

from collections.abc import Iterable, Sequence

from everstep_controller.journal.sqlite.store import JournalStore

# A snapshot that cannot be read must not cost the state: the one before it is kept, with its tail.
SNAPSHOTS_KEPT = 2
# Where a replay may begin moves on by this share of the time for which events are kept: it takes
# one more snapshot for each, and events are kept for longer by that.
_MOVES = 2


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


def needed_snapshots(taken: Sequence[tuple[int, int]], events_before_ns: int) -> set[int]:
    """Return which snapshots are needed, of those taken: the event and time of each, oldest first.

    The newest by the next start. By a replay, which begins with the oldest one, the newest that is
    older than all events that must be kept; and those that will be that one, as time goes on.
    """
    if not taken:
        return set()
    apart_ns = max(1, (taken[-1][1] - events_before_ns) // _MOVES)
    first = max((at for at, one in enumerate(taken) if one[1] < events_before_ns), default=0)
    bases = [taken[first]]
    for one in taken[first + 1 :]:
        if one[1] - bases[-1][1] >= apart_ns:
            bases.append(one)
    return {seq for seq, _ in (*bases, *taken[-SNAPSHOTS_KEPT:])}


def forget_outboxes(store: JournalStore, replaced: Iterable[str]) -> None:
    """Delete the marks of outboxes that their nodes have replaced."""
    for outbox in replaced:
        store.execute("DELETE FROM mark WHERE outbox = ?", (outbox,))
