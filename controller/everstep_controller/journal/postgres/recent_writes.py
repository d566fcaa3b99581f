"""Recent writes of a journal: what its writer can write again after a failover that lost it. Pure.

A new leader may lack the newest transactions of the old one. Their writer has made them, and the
count of the lease's row says which one is the first that is missing. So it keeps those of the last
half minute, more than a standby that follows is behind, and brings them to the new leader.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from everstep_controller.journal.checksums import Chain
from everstep_controller.journal.postgres.pending_writes import PendingWrites

_KEPT_NS = 30_000_000_000
# As memory has them; more than a fleet of 12,500 nodes writes in half a minute, but for snapshots.
_KEPT_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """How far a journal goes: the count of its transactions, and its chain after the last."""

    writes: int
    chain: Chain


@dataclass(frozen=True, slots=True)
class RecentWrite:
    """A transaction that was durable, and where it led."""

    after: Position
    written: PendingWrites
    at_ns: int
    size_bytes: int


class RecentWrites:
    """The newest transactions of a writer, in their order."""

    def __init__(self, kept_ns: int = _KEPT_NS, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_ns = kept_ns
        self._kept_bytes = kept_bytes
        self._writes: deque[RecentWrite] = deque()
        self._size_bytes = 0
        # Where the first of them began.
        self._before: Position | None = None

    def note(self, before: Position, after: Position, written: PendingWrites, now_ns: int) -> None:
        """Keep a transaction that is durable, and forget old ones."""
        if not self._writes:
            self._before = before
        write = RecentWrite(after, written, now_ns, size_of(written))
        self._writes.append(write)
        self._size_bytes += write.size_bytes
        while self._writes and (
            self._size_bytes > self._kept_bytes or now_ns - self._writes[0].at_ns > self._kept_ns
        ):
            oldest = self._writes.popleft()
            self._size_bytes -= oldest.size_bytes
            self._before = oldest.after

    def missing(self, there: Position) -> Sequence[RecentWrite]:
        """Return what a journal lacks that goes so far; () where this writer was never there."""
        if self._before == there:
            return tuple(self._writes)
        places = [place for place, one in enumerate(self._writes, 1) if one.after == there]
        return tuple(self._writes)[places[0] :] if places else ()


def size_of(written: PendingWrites) -> int:
    """Return about how many bytes a transaction has."""
    events = sum(len(event.body) for event, _ in written.events)
    rows = (row for rows in written.rows.values() for row in rows.values())
    return events + sum(len(v) for row in rows for v in row if isinstance(v, str | bytes))
