"""Placement: which nodes take part in which order; neighbours by rank are near in the network.

A domain is a path ("pod-1/leaf-3/rack-7"), or one name. The more of it two nodes share, the nearer
they are. Whoever is in place stays there, so that only the ring around a lost node is reordered.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SUSPECT = 2
# Taken only where nobody else is left: neither near nor far.
LAST = SUSPECT + 1

_DIGITS = re.compile(r"(\d+)")

_Natural = tuple[tuple[int, int, str], ...]

_Path = tuple[str, ...]


class Candidate(NamedTuple):
    """A node that could take ranks; ``distrust`` is 0 for a healthy one, SUSPECT for a doubted one.

    It is LAST for one that is taken only where no other is left.
    """

    name: str
    domain: str
    distrust: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes in rank order; ``replaced`` says which spare took whose place."""

    places: list[str]
    replaced: Mapping[str, str]
    # Members that are gone and have no successor.
    empty: int


def place_nodes(
    members: Sequence[str],
    domains: Mapping[str, str],
    able: Sequence[Candidate],
    most: int,
    replica: int = 1,
) -> Placement:
    """Return who takes part: members keep their places, spares take those of the gone.

    ``domains`` are those of the members; at most ``most`` nodes take part, and where ``replica``
    of them hold one copy of the model together, so many or none of each. The first node, where
    the others meet, is a healthy one if any is.
    """
    there = {one.name: one for one in able}
    taking_part = set(members)
    spares = _Spares([one for one in able if one.name not in taking_part])
    seats: list[str] = []
    replaced: dict[str, str] = {}
    for name in members:
        if name in there:
            seats.append(name)
        elif spare := spares.nearest(domains.get(name, "")):
            replaced[name] = spare.name
            seats.append(spare.name)
        else:
            seats.append("")
    empty = seats.count("")
    places = _whole(seats, replica)
    more = spares.best(most - len(places))
    more = more[: len(more) - (len(places) + len(more)) % replica]
    places = _grown(places, more, there)[:most]
    trust = {name: there[name].distrust for name in places}
    return Placement(rendezvous_first(places, trust), replaced, empty)


def _whole(seats: Sequence[str], replica: int) -> list[str]:
    """Return the seats without the empty ones; who is left of broken replicas makes whole ones.

    Those that are whole stay as they are. Nodes that are left over wait, as spares do.
    """
    replicas = [seats[at : at + replica] for at in range(0, len(seats), replica)]
    left = [name for one in replicas if not all(one) for name in one if name]
    places: list[str] = []
    for one in replicas:
        if all(one) and len(one) == replica:
            places += one
        elif len(left) >= replica:
            places, left = places + left[:replica], left[replica:]
    return places


def rendezvous_first(places: Sequence[str], distrust: Mapping[str, int]) -> list[str]:
    """Return the places with a trusted node first; it changes places with the one that is not."""
    ordered = list(places)
    if not ordered or distrust[ordered[0]] < SUSPECT:
        return ordered
    best = min(range(len(ordered)), key=lambda index: (distrust[ordered[index]], index))
    ordered[0], ordered[best] = ordered[best], ordered[0]
    return ordered


def natural(name: str) -> _Natural:
    """Return what sorts node-2 before node-10."""
    parts = _DIGITS.split(name)
    return tuple((int(part), 0, "") if part.isdecimal() else (-1, 0, part) for part in parts)


class _Spares:
    """Nodes without a place; each is in the bucket of every part of its path."""

    def __init__(self, able: Iterable[Candidate]) -> None:
        self._free = {one.name: one for one in able}
        self._buckets: dict[_Path, list[Candidate]] = {}
        # The best are at the end, where taking one is cheap.
        for one in sorted(self._free.values(), key=_rank, reverse=True):
            path = _path(one.domain)
            for depth in range(len(path) + 1):
                self._buckets.setdefault(path[:depth], []).append(one)

    def nearest(self, domain: str) -> Candidate | None:
        """Take the spare that shares most of a domain; of equals the most trusted one.

        A suspect one is taken only where no other is left: else it would soon be replaced in turn.
        """
        path = _path(domain)
        for most in (SUSPECT - 1, SUSPECT, LAST):
            for depth in range(len(path), -1, -1):
                one = self._first_free(path[:depth])
                if one is not None and one.distrust <= most:
                    del self._free[one.name]
                    return one
        return None

    def _first_free(self, path: _Path) -> Candidate | None:
        """Return the most trusted spare of a domain that has no place yet."""
        bucket = self._buckets.get(path, [])
        while bucket and bucket[-1].name not in self._free:
            bucket.pop()
        return bucket[-1] if bucket else None

    def best(self, count: int) -> list[Candidate]:
        """Take so many, if there are: trusted ones first, and those that fill whole domains."""
        sizes = Counter(one.domain for one in self._free.values())
        chosen = sorted(
            self._free.values(), key=lambda one: (one.distrust, -sizes[one.domain], *_site(one))
        )[: max(0, count)]
        for one in chosen:
            del self._free[one.name]
        return sorted(chosen, key=_site)


def _rank(one: Candidate) -> tuple[int, _Natural]:
    return one.distrust, natural(one.name)


def _site(one: Candidate) -> tuple[tuple[_Natural, ...], _Natural]:
    return tuple(natural(part) for part in _path(one.domain)), natural(one.name)


def _path(domain: str) -> _Path:
    return tuple(domain.split("/")) if domain else ()


def _grown(
    places: list[str], more: Sequence[Candidate], there: Mapping[str, Candidate]
) -> list[str]:
    """Return the places with more nodes, each behind the last one of its domain."""
    if not places:
        return [one.name for one in more]
    behind: dict[str, list[str]] = {}
    last = {there[name].domain: name for name in places}
    for one in more:
        behind.setdefault(last.get(one.domain, places[-1]), []).append(one.name)
    return [name for place in places for name in (place, *behind.get(place, ()))]
