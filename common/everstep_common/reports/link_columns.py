"""Link columns: in how many minutes of a day a node's ports counted errors, packed. Pure."""

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_common import quantities as q
from everstep_common.reports.nodes import LinkColumns

# Counters that are compared, in the order of the bits of `blind`: the kernel's names.
COUNTERS = ("link_error_recovery", "link_downed", "symbol_error")
_MOST = 2**16 - 1


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One port: in how many minutes each counter grew, in the order of COUNTERS."""

    port: str
    minutes: tuple[int, int, int] = (0, 0, 0)
    # How many minutes ago the newest and the oldest of them was; 0 for none.
    newest: tuple[int, int, int] = (0, 0, 0)
    oldest: tuple[int, int, int] = (0, 0, 0)
    # Bits of the counters that tell nothing.
    blind: int = 0


def pack_links(rows: Sequence[LinkRow], watched: int) -> LinkColumns | None:
    """Return them as columns; None for no ports."""
    rows = rows[: q.PORTS_OF_NODE_MAX]
    if not rows:
        return None
    recoveries, losses, symbol_errors = _by_counter(row.minutes for row in rows)
    return LinkColumns(
        ports=tuple(row.port for row in rows),
        recoveries=recoveries,
        losses=losses,
        symbol_errors=symbol_errors,
        newest=b"".join(_by_counter(row.newest for row in rows)),
        oldest=b"".join(_by_counter(row.oldest for row in rows)),
        blind=bytes(row.blind for row in rows),
        watched=min(watched, _MOST),
    )


def _by_counter(values: Iterable[tuple[int, int, int]]) -> list[bytes]:
    return [_packed(of_ports) for of_ports in zip(*values, strict=True)]


def _packed(values: Iterable[int]) -> bytes:
    packed = array("H", [min(value, _MOST) for value in values])
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
