"""Paddings between the shards of a slot: set to zero, whatever the slot held before.

A copy's hash covers it, so storage has to keep it, and old bytes have no business there. Zeros
cost nothing.
"""

import ctypes
from collections.abc import Sequence
from itertools import pairwise

from everstep_common.rank_messages import Entry

# From the end of a shard to the beginning of the next one, in bytes of the slot.
Gap = tuple[int, int]


def gaps_between(entries: Sequence[Entry]) -> frozenset[Gap]:
    """Return the gaps of a layout, whose shards are in the order of the slot."""
    pairs = (
        (one.offset_bytes + one.size_bytes, two.offset_bytes) for one, two in pairwise(entries)
    )
    return frozenset(gap for gap in pairs if gap[0] < gap[1])


class Paddings:
    """The gaps of one slot; zero after `clear`, until shards lie elsewhere."""

    def __init__(self) -> None:
        self._entries: Sequence[Entry] | None = None
        self._zeros: frozenset[Gap] = frozenset()

    def clear(self, address: int, entries: Sequence[Entry]) -> None:
        """Zero what lies between shards that are about to be copied to a slot at ``address``."""
        if entries == self._entries:  # as after most steps
            return
        gaps, known = gaps_between(entries), self._zeros
        # Should this be cut short, nothing is known of the slot any more.
        self._entries, self._zeros = None, frozenset()
        for begin, end in gaps - known:
            ctypes.memset(address + begin, 0, end - begin)
        self._entries, self._zeros = entries, gaps
