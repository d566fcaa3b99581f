"""Link errors: in how many minutes of a day the ports of every node counted errors, in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everstep_common.reports import LinkColumns
from everstep_common.reports.link_columns import COUNTERS

Minutes = NDArray[np.int32]
_Mask = NDArray[np.bool_]

# Agents tell once a minute; what was told longer ago says nothing of now.
FRESH_NS = 5 * 60 * 10**9


@dataclass(frozen=True, slots=True)
class PortErrors:
    """Errors of one node's ports. Arrays are of counters (as COUNTERS) and ports."""

    ports: tuple[str, ...]
    # In how many minutes each counter grew, and whether it can tell.
    minutes: Minutes
    known: _Mask
    # How many minutes ago the newest and the oldest of them was; 0 for none.
    newest: Minutes
    oldest: Minutes
    # For how many minutes its agent has watched.
    watched: int
    told_ns: int


class LinkErrors:
    """The newest word of each node on its ports."""

    def __init__(self) -> None:
        self._told: dict[str, PortErrors] = {}

    def add(self, node: str, columns: LinkColumns, now_ns: int) -> None:
        """Take what a node tells; columns that are too short, or names twice, count for nothing."""
        count = len(columns.ports)
        each = (columns.recoveries, columns.losses, columns.symbol_errors)
        packed = (b"".join(each), columns.newest, columns.oldest)
        whole = all(len(one) == 2 * count for one in each) and len(columns.blind) == count
        whole = whole and all(len(one) == 2 * len(COUNTERS) * count for one in packed)
        if not whole or len(set(columns.ports)) != count:
            self._told.pop(node, None)
            return
        minutes, newest, oldest = (_unpacked(one, count) for one in packed)
        blind = np.frombuffer(columns.blind, dtype=np.uint8)
        known = [(blind & (1 << bit)) == 0 for bit in range(len(COUNTERS))]
        self._told[node] = PortErrors(
            ports=columns.ports,
            minutes=minutes,
            known=np.stack(known),
            newest=newest,
            oldest=oldest,
            watched=columns.watched,
            told_ns=now_ns,
        )

    def of_nodes(self, nodes: Sequence[str], now_ns: int) -> tuple[PortErrors | None, ...]:
        """Return what is known of these nodes now; None where nothing is."""
        told = (self._told.get(node) for node in nodes)
        return tuple(one if one and now_ns - one.told_ns <= FRESH_NS else None for one in told)


def _unpacked(packed: bytes, ports: int) -> Minutes:
    return np.frombuffer(packed, dtype="<u2").astype(np.int32).reshape(len(COUNTERS), ports)
