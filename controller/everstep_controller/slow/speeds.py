"""Speeds of workers beside their role: who told enough to be judged, and roles of two speeds.

Where half of a role is slower than the other half, or one of two workers, nobody can be named: who
is usual is not known. That they stay apart is.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from everstep_controller.slow.peers import Floats, Indices, Mask, Roster, row_medians

# Ours: the mean of a worker follows its newest steps by so much.
_FOLLOWS = 1 / 20
_FIRST_STEPS = 10
# As `track.Rules`: known in so many of any ten steps a worker is judged.
_KNOWN_MIN, _WINDOW = 8, 10
# Ours: two speeds are apart by 5 %, by half as much again as each of both spreads, and as the steps
# of a worker of either do.
_APART_MIN, _APART_TIMES = 0.05, 1.5
# Ours: so much of it was there in the first steps already.
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class TwoSpeeds:
    """Workers of a role that stay apart from its others."""

    role: int
    slower: Indices
    others: Indices


class Speeds:
    """Means of the logarithms of seconds to the median of the role; bounded, whatever the steps."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        size = roster.size
        # In how many steps each worker told its seconds.
        self.rows: Indices = np.zeros(size, dtype=np.int64)
        self._means = np.zeros(size)
        self._deviations = np.zeros(size)
        self._first = np.full(size, np.nan)
        # The newest ten steps: who told its seconds in each.
        self._told: Mask = np.zeros((_WINDOW, size), dtype=bool)
        self._steps = 0
        self.judged: Mask = np.zeros(size, dtype=bool)

    def add(self, seconds: Floats, role_s: Floats) -> None:
        """Take the seconds of a step, and the medians of its roles."""
        known = ~np.isnan(seconds)
        ratios = np.log(seconds / role_s[self._roster.roles])
        self.rows += known
        follows = np.fmax(_FOLLOWS, 1 / np.fmax(self.rows, 1))
        change = np.where(known, ratios - self._means, 0.0)
        self._means += follows * change
        later = np.where(known & (self.rows > 1), np.abs(change) - self._deviations, 0.0)
        self._deviations += follows * later
        self._told[self._steps % _WINDOW] = known
        self.judged |= np.count_nonzero(self._told, axis=0) >= _KNOWN_MIN
        self._steps += 1
        if self._steps == _FIRST_STEPS:
            self._first = np.where(self.rows > 0, self._means, np.nan)

    def seldom(self) -> Indices:
        """Return who told its seconds in some steps, and never in eight of ten."""
        return np.flatnonzero((self.rows > 0) & ~self.judged & (self._steps >= _WINDOW))

    def factor(self, slower: Indices) -> float:
        """Return how many times as long some take as the others of their role, lately."""
        return math.exp(self._apart(self._means, slower))

    def always(self, slower: Indices) -> bool:
        """Return whether they took so much longer in the first steps already."""
        # NaN compares as false.
        return self._apart(self._first, slower) > _ALIKE * self._apart(self._means, slower)

    def two_speeds(self) -> Iterator[TwoSpeeds]:
        """Yield the roles whose workers are of two speeds, clearly apart."""
        for role in range(self._roster.by_role.count):
            members = np.flatnonzero((self._roster.roles == role) & self.judged)
            members = members[np.argsort(self._means[members], kind="stable")]
            means = self._means[members]
            if len(means) < 2:
                continue
            gaps = np.diff(means)
            place = int(np.argmax(gaps))
            within = max(means[place] - means[0], means[-1] - means[place + 1])
            # Of either group: who stalls now and then has a mean of its own, too.
            groups = np.split(self._deviations[members], [place + 1])
            jumps = max(float(np.median(one)) for one in groups)
            if gaps[place] > max(_APART_MIN, _APART_TIMES * max(within, jumps)):
                yield TwoSpeeds(role, np.sort(members[place + 1 :]), np.sort(members[: place + 1]))

    def _apart(self, means: Floats, slower: Indices) -> float:
        roles, inside = self._roster.roles, np.zeros(len(means), dtype=bool)
        inside[slower] = True
        others = np.isin(roles, roles[slower]) & ~inside & self.judged
        middles = row_medians(np.where([inside, others], means, np.nan))
        return float(middles[0] - middles[1])
