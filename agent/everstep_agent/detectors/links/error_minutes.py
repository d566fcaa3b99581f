"""Error minutes: in which minutes of the last day the error counters of a node's ports grew.

Whether a port is alone with that can be told only beside the same ports of other nodes: one switch
makes a port of each of its nodes retrain. So agents report minutes, and the controller compares.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep_agent.detectors.readings.counters import Growth
from everstep_common.judging.condition import BOOT_GRACE_NS, HOUR_NS, MINUTE_NS
from everstep_common.judging.moment import Moment
from everstep_common.reports import LinkColumns
from everstep_common.reports.link_columns import COUNTERS, LinkRow, pack_links

_DAY = 24 * HOUR_NS // MINUTE_NS
# Growth over a longer time happened while nobody looked: in which minute is not known.
_LONGEST_S = 120.0
_Minutes = deque[int]


def _no_minutes() -> tuple[_Minutes, _Minutes, _Minutes]:
    return deque(), deque(), deque()


@dataclass(slots=True)
class _Port:
    """One port: the minutes of each counter, and which counters tell nothing, as bits."""

    minutes: tuple[_Minutes, _Minutes, _Minutes] = field(default_factory=_no_minutes)
    blind: int = 0


class ErrorMinutes:
    """Minutes with errors of all ports. They are forgotten with the agent, and so is its watch."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}
        self._since_ns: int | None = None
        self._boot_id = ""

    def add(self, grown: Mapping[str, Mapping[str, Growth]], now: Moment) -> None:
        """Take one reading: by port and counter, how much it grew. A port that is gone goes."""
        if self._since_ns is None or now.boot_id != self._boot_id:
            self._ports, self._since_ns, self._boot_id = {}, now.boot_ns, now.boot_id
        self._ports = {port: self._ports.get(port, _Port()) for port in grown}
        minute = now.boot_ns // MINUTE_NS
        for port, counters in grown.items():
            known = self._ports[port]
            known.blind = 0
            for bit, (name, minutes) in enumerate(zip(COUNTERS, known.minutes, strict=True)):
                growth = counters.get(name)
                if growth is None or growth.saturated:
                    known.blind |= 1 << bit
                # Links train when a machine starts.
                elif now.boot_ns >= BOOT_GRACE_NS and _is_growth(growth):
                    _add(minutes, minute)

    def columns(self, now: Moment) -> LinkColumns | None:
        """Return the minutes of the last day; None where there are no ports."""
        minute = now.boot_ns // MINUTE_NS
        rows = [_row(port, known, minute) for port, known in sorted(self._ports.items())]
        watched_ns = now.boot_ns - (self._since_ns or 0)
        return pack_links(rows, min(watched_ns // MINUTE_NS, _DAY))


def _is_growth(growth: Growth) -> bool:
    """Return whether a counter has counted just now, and did not begin anew."""
    return growth.count > 0 and not growth.reset and growth.seconds <= _LONGEST_S


def _add(minutes: _Minutes, minute: int) -> None:
    if not minutes or minutes[-1] != minute:
        minutes.append(minute)


def _row(port: str, known: _Port, minute: int) -> LinkRow:
    for minutes in known.minutes:
        while minutes and minutes[0] <= minute - _DAY:
            minutes.popleft()
    # The minute that lasts counts as one.
    ages = [(1 + minute - one[-1], 1 + minute - one[0]) if one else (0, 0) for one in known.minutes]
    (newest_1, oldest_1), (newest_2, oldest_2), (newest_3, oldest_3) = ages
    first, second, third = map(len, known.minutes)
    return LinkRow(
        port,
        (first, second, third),
        newest=(newest_1, newest_2, newest_3),
        oldest=(oldest_1, oldest_2, oldest_3),
        blind=known.blind,
    )
