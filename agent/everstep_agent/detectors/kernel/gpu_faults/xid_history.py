"""Xid history: which Xids were seen when, over reboots, because one that returns weighs more."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.judging.condition import HOUR_NS, SECOND_NS
from everstep_common.judging.moment import Moment

# NVSentinel: Xids less than three minutes apart are one burst.
BURST_GAP_NS = 180 * SECOND_NS
# NVSentinel: two bursts of Xid 13 or 31 in a day call for diagnostics.
WINDOW_NS = 24 * HOUR_NS
BURSTS = 2
# gpud: an Xid that is back after two reboots is the hardware.
EARLIER_BOOTS = 2
# Our own choice: a fault that came back within two weeks is the same fault.
_BOOTS_WINDOW_NS = 14 * 24 * HOUR_NS
# More than eight GPUs show in two weeks; what is older is dropped first.
_SIGHTINGS_MAX = 500


@dataclass(frozen=True, slots=True)
class XidSighting:
    """The beginning of one burst of one Xid on one GPU; ``place``: where in it, if it said so.

    ``uuid`` is empty where no driver could tell it. Another GPU in the same slot has another one.
    """

    pci: str
    code: int
    place: str
    boot_id: str
    wall_ns: int
    uuid: str = ""


class XidHistory:
    """Xids that were seen, by the wall clock, the only one that goes on over a reboot."""

    def __init__(self, sightings: Iterable[XidSighting] = ()) -> None:
        self._seen = deque(sightings, maxlen=_SIGHTINGS_MAX)
        self._newest: dict[tuple[str, int, str, str], int] = {}
        self.changed = False

    def note(self, pci: str, code: int, place: str, now: Moment, uuid: str = "") -> None:
        """Remember an Xid; those of one burst count once."""
        key = (pci, code, place, now.boot_id)
        before = self._newest.get(key)
        self._newest[key] = now.wall_ns
        if before is None:
            before = max((s.wall_ns for s in self._seen if _key(s) == key), default=None)
        if before is not None and abs(now.wall_ns - before) < BURST_GAP_NS:
            return
        self._seen.append(XidSighting(pci, code, place, now.boot_id, now.wall_ns, uuid))
        self.changed = True

    def earlier_boots(self, pci: str, code: int, now: Moment, uuid: str = "") -> int:
        """Return in how many boots before this one the GPU had the same Xid."""
        oldest_ns = now.wall_ns - _BOOTS_WINDOW_NS
        return len(
            {
                seen.boot_id
                for seen in self._seen
                if (seen.pci, seen.code) == (pci, code)
                and seen.wall_ns >= oldest_ns
                and (not uuid or seen.uuid in ("", uuid))
            }
            - {now.boot_id}
        )

    def bursts(self, pci: str, code: int, place: str, now: Moment) -> int:
        """Return how often it came in the last day at this place."""
        wanted = (pci, code, place)
        return sum((s.pci, s.code, s.place) == wanted for s in self._within(now))

    def elsewhere(self, pci: str, code: int, now: Moment) -> bool:
        """Return whether another GPU had the same Xid in the last day."""
        return any(s.code == code and s.pci != pci for s in self._within(now))

    def remembered(self) -> tuple[XidSighting, ...]:
        """Return what the next agent must know."""
        return tuple(self._seen)

    def _within(self, now: Moment) -> Iterable[XidSighting]:
        return (seen for seen in self._seen if seen.wall_ns >= now.wall_ns - WINDOW_NS)


def _key(seen: XidSighting) -> tuple[str, int, str, str]:
    return seen.pci, seen.code, seen.place, seen.boot_id
