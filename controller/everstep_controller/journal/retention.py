"""Retention of a journal's snapshots of the state: which of them are still needed. Pure."""

from collections.abc import Sequence

# A snapshot that cannot be read must not cost the state: the one before it is kept, with its tail.
SNAPSHOTS_KEPT = 2
# Where a replay may begin moves on by this share of the time for which events are kept: it takes
# one more snapshot for each, and events are kept for longer by that.
_MOVES = 2


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
