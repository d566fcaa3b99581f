"""Comparison with peers: each worker against the median of the others with its role."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Of a normal distribution the standard deviation is 1.4826 times the median absolute deviation.
MAD_TO_SIGMA = 1.4826
# A worker in a role of this many, itself included, or fewer has too few peers.
PEERS_MIN = 3
# Ours: what so many of a group do not exceed is looked at as well.
_UPPER = 0.85
# So few members say little about how much they spread: they are taken together with all others.
OWN_SPREAD_MIN = 8


@dataclass(frozen=True)
class Roster:
    """Workers of a job in the order of all arrays: their roles, and the places they share.

    ``places`` has, by the kind of place (node, leaf, rack, power), the place of each worker as a
    number; -1: not known.
    """

    names: Sequence[str]
    roles: Indices
    role_names: Sequence[str]
    places: Mapping[str, Indices] = field(default_factory=dict)
    place_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # It is known that all of one role do the same work, also where there is only one role.
    roles_known: bool = False

    @property
    def size(self) -> int:
        """Return how many workers there are."""
        return len(self.names)

    @cached_property
    def by_role(self) -> "Groups":
        """Return the workers grouped by their roles."""
        return Groups(self.roles, len(self.role_names))


@dataclass(frozen=True, slots=True)
class GroupMedians:
    """Medians of groups, and for each member the median of the others; NaN where there is none.

    ``of_upper``: what 85 % of a group do not exceed.
    """

    of_group: Floats
    of_peers: Floats
    of_upper: Floats


class Groups:
    """Groups of workers, laid out so that the medians of all cost one sort for each size class."""

    def __init__(self, groups: Indices, count: int) -> None:
        self.of, self.count = groups, count
        self.sizes: Indices = np.bincount(groups, minlength=count)
        self._classes = list(self._laid_out())

    def _laid_out(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield groups whose sizes are within a factor of two, and their members, padded."""
        order = np.argsort(self.of, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        for power in range(int(self.sizes.max()).bit_length()):
            which = np.flatnonzero((self.sizes >> power) == 1)
            if len(which):
                columns = np.arange(self.sizes[which].max())
                inside = columns < self.sizes[which, None]
                at = np.where(inside, starts[which, None] + columns, 0)
                yield which, np.where(inside, order[at], len(self.of))

    def medians(self, values: Floats) -> GroupMedians:
        """Return the medians of values; those that are NaN are left out."""
        padded = np.append(values, np.nan)
        of_group, of_peers = np.full(self.count, np.nan), np.full(len(padded), np.nan)
        of_upper = np.full(self.count, np.nan)
        for which, members in self._classes:
            unordered = padded[members]
            ordered = np.sort(unordered, axis=1)  # NaN comes last
            known = np.count_nonzero(~np.isnan(ordered), axis=1)[:, None]
            of_group[which] = (
                0.5 * (_at(ordered, (known - 1) // 2) + _at(ordered, known // 2))[:, 0]
            )
            of_upper[which] = _at(ordered, np.rint(_UPPER * (known - 1)).astype(np.int64))[:, 0]
            rest = known - 1
            low, high = (rest - 1) // 2, rest // 2
            # Taking one value out moves the middle by one place, if it was at or before it.
            one = np.where(unordered <= _at(ordered, low), _at(ordered, low + 1), _at(ordered, low))
            two = np.where(
                unordered <= _at(ordered, high), _at(ordered, high + 1), _at(ordered, high)
            )
            of_peers[members] = np.where(rest > 0, 0.5 * (one + two), np.nan)
        return GroupMedians(of_group, of_peers[:-1], of_upper)


def _at(ordered: Floats, columns: Indices) -> Floats:
    """Return one value of each row; NaN where the row is that short."""
    inside = (columns >= 0) & (columns < ordered.shape[1])
    found = np.take_along_axis(ordered, np.where(inside, columns, 0), axis=1)
    return np.where(inside, found, np.nan)


def spread(values: Floats, roster: Roster) -> Floats:
    """Return for each worker how much such values spread, as one robust standard deviation.

    That is of its role where the role has 8 members or more, and otherwise of all workers.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(values), np.nan)
    pooled = MAD_TO_SIGMA * np.median(np.abs(known - np.median(known)))
    roles = roster.by_role
    if roles.count == 1 or roles.sizes.max() < OWN_SPREAD_MIN:
        return np.full(len(values), pooled)
    deviations = np.abs(values - roles.medians(values).of_group[roles.of])
    by_role = MAD_TO_SIGMA * roles.medians(deviations).of_group
    by_role = np.where((roles.sizes >= OWN_SPREAD_MIN) & ~np.isnan(by_role), by_role, pooled)
    return np.asarray(by_role[roles.of])


def upper(values: Floats, roster: Roster) -> Floats:
    """Return for each worker what 85 % of its role, or of all where it is small, do not exceed."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(values), np.nan)
    pooled, roles = float(np.quantile(known, _UPPER)), roster.by_role
    if roles.count == 1 or roles.sizes.max() < OWN_SPREAD_MIN:
        return np.full(len(values), pooled)
    by_role = roles.medians(values).of_upper
    by_role = np.where((roles.sizes >= OWN_SPREAD_MIN) & ~np.isnan(by_role), by_role, pooled)
    return np.asarray(by_role[roles.of])


def row_medians(values: Floats) -> Floats:
    """Return the median of what is known in each row; NaN where nothing is."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    known = np.count_nonzero(~np.isnan(ordered), axis=1)[:, None]
    middle = 0.5 * (_at(ordered, (known - 1) // 2) + _at(ordered, known // 2))
    return np.asarray(np.where(known > 0, middle, np.nan)[:, 0])


def middle_means(window: Floats, known_min: int) -> Floats:
    """Return the mean of each column without its highest and its lowest fifth.

    NaN where fewer values than ``known_min`` are known.
    """
    ordered = _sorted_columns(np.where(np.isnan(window), np.inf, window))
    known = np.count_nonzero(np.isfinite(ordered), axis=0)
    total = np.zeros(window.shape[1])
    cut = known // 5
    for place, row in enumerate(ordered):
        inside = (place >= cut) & (place < known - cut)
        total += np.where(inside, row, 0.0)
    means = total / np.maximum(known - 2 * cut, 1)
    return np.where(known >= max(known_min, 1), means, np.nan)


def _sorted_columns(rows: Floats) -> list[Floats]:
    """Sort all columns at once, by a network that compares whole rows."""
    ordered = list(rows)
    for low, high in _network(len(ordered)):
        one, two = ordered[low], ordered[high]
        ordered[low], ordered[high] = np.minimum(one, two), np.maximum(one, two)
    return ordered


@cache
def _network(size: int) -> tuple[tuple[int, int], ...]:
    """Return the comparisons of Batcher's odd-even merge sort (Knuth, volume 3, 5.2.2, M)."""
    if size < 2:
        return ()
    top = 1 << ((size - 1).bit_length() - 1)
    found = []
    phase = top
    while phase:
        distance, offset, rest = phase, 0, top
        while True:
            found += [
                (low, low + distance) for low in range(size - distance) if low & phase == offset
            ]
            if rest == phase:
                break
            distance, offset, rest = rest - phase, phase, rest // 2
        phase //= 2
    return tuple(found)
