"""Common causes: nodes, leaves, racks and power domains whose workers are slow together."""

import math
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.peers import Floats, Indices, Roster, row_medians

# Published: where 60 % of a domain move together, it is one incident of the domain.
_SHARE_MIN = 0.6
# Two may be slow by chance, and then each is reported for itself.
_MEMBERS_MIN = 3


@dataclass(frozen=True, slots=True)
class SlowPlace:
    """Place whose workers are slow together, as the logarithm of seconds to those of peers."""

    kind: str
    place: int
    members: Indices
    ratio: float


@dataclass(frozen=True, slots=True)
class SlowPlaces:
    """All places that are slow at one moment."""

    found: tuple[SlowPlace, ...]

    def effect(self, middles: Floats) -> Floats:
        """Return by worker how much of the middle of a window is that of its places."""
        total = np.zeros(len(middles))
        for one in self.found:
            left = middles[one.members] - total[one.members]
            known = left[~np.isnan(left)]
            if len(known):
                total[one.members] += max(float(np.median(known)), 0.0)
        return total

    def kept(self, before: "SlowPlaces", longest: Floats, cleared: float) -> "SlowPlaces":
        """Return these and those from before that still are in the longest window.

        Otherwise the members of a place that has recovered would be blamed for what is left of it.
        """
        effect = self.effect(longest)
        there = {(one.kind, one.place) for one in self.found}
        held = [
            one
            for one in before.found
            if (one.kind, one.place) not in there
            and row_medians((longest - effect)[None, one.members])[0] > cleared
        ]
        return SlowPlaces((*self.found, *held))


NO_PLACES = SlowPlaces(())


def slow_places(middles: Floats, limit: Floats, roster: Roster, ratio: float) -> SlowPlaces:
    """Return the slow places, the widest kind first: what a rack explains, no node is blamed for.

    ``limit`` is what a worker's middle must exceed to be slow, ``ratio`` what counts as moving.
    """
    found: list[SlowPlace] = []
    left = middles.copy()
    for kind in sorted(roster.places, key=lambda one: len(roster.place_names[one])):
        for one in _of_kind(kind, left, limit, roster, ratio):
            found.append(one)
            left[one.members] -= one.ratio
    return SlowPlaces(tuple(found))


def _of_kind(
    kind: str, medians: Floats, limit: Floats, roster: Roster, ratio: float
) -> list[SlowPlace]:
    places = roster.places[kind]
    moving = (medians > ratio) & (places >= 0)
    if not moving.any():
        return []
    count = len(roster.place_names[kind])
    known = ~np.isnan(medians) & (places >= 0)
    sizes = np.bincount(places[known], minlength=count)
    moved = np.bincount(places[moving], minlength=count)
    candidates = np.flatnonzero((moved >= _MEMBERS_MIN) & (moved >= _SHARE_MIN * sizes))
    found = []
    for place in candidates:
        members = np.flatnonzero((places == place) & known)
        middle = float(np.median(medians[members]))
        # The middle of many is known so much better than that of one.
        least = max(ratio, float(np.median(limit[members])) / math.sqrt(len(members)))
        if middle > least and _holds_several(kind, members, roster):
            found.append(SlowPlace(kind, int(place), np.flatnonzero(places == place), middle))
    return found


def _holds_several(kind: str, members: Indices, roster: Roster) -> bool:
    """Return whether a place is more than one place of each narrower kind."""
    wider = len(roster.place_names[kind])
    return all(
        len(np.unique(roster.places[other][members])) > 1
        for other in roster.places
        if len(roster.place_names[other]) > wider
    )
