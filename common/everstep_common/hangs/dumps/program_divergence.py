"""Program divergence: where a rank's operations depart from its own history. Pure.

A rank that leaves out an operation goes on with what comes after it. The frontiers of the others
tell that something is wrong, but not who: the rank's own history does. What a program does in
another way now and then is no departure, so a history is believed only where it foretold all that
came before.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

# Of the newest operations, where one may have departed, and before these where none may.
_NEWEST, _STEADY, _STEADY_MIN = 32, 64, 8
# The share of those that have to be foretold.
_FORETOLD = 0.9
# Of all operations, so many of the newest are compared: each with each.
_COMPARED = 1200
# Of what came before an operation, so much is compared at most where the comparison begins.
_CONTEXT = 96
# How often what came before an operation must have come before, and what size must have come.
_TIMES, _SIZES = 3, 4


@dataclass(frozen=True, slots=True)
class Called:
    """One operation that a rank called."""

    # What is equal in two operations that a program calls at the same place.
    label: str
    # What is equal in most programs as well, but may differ from one batch to the next.
    size: str = ""


def departure_of(operations: Sequence[Called]) -> str:
    """Return in words the first departure among the newest operations; "" where there is none.

    "all_reduce of world where barrier of world came the 12 times before". ``operations`` are all
    that are known, oldest first.
    """
    known = operations[-_COMPARED:]
    labels = [one.label for one in known]
    found = _first(labels, _TIMES)
    # A size departs only where the operation does not.
    whole = [(one.label, one.size) for one in known]
    sized = _first(whole, _SIZES) if len(set(whole)) > len(set(labels)) else None
    if sized is not None and (found is None or sized.place < found.place):
        called, usual = known[sized.place], known[sized.usual]
        if called.label == usual.label:
            told = f"{called.label} of {called.size} where {usual.size}"
            return f"{told} came the {sized.times} times before"
    if found is None:
        return ""
    told = f"{labels[found.place]} where {labels[found.usual]}"
    return f"{told} came the {found.times} times before"


@dataclass(frozen=True, slots=True)
class _Unforeseen:
    """An operation in whose place another one came each time before."""

    place: int
    # Where the newest of those is, and how many there are.
    usual: int
    times: int


def _first(names: Sequence[Hashable], times_min: int) -> _Unforeseen | None:
    """Return the newest operation that was unforeseen, of a history that foretold those before."""
    newest = len(names) - min(_NEWEST, len(names) // 4)
    steady = min(_STEADY, len(names) // 4)
    if steady < _STEADY_MIN:
        return None
    foretold = 0
    for place, alike in _contexts(names, newest - steady):
        usual = _usual(names, alike, times_min)
        if usual and names[usual[-1]] != names[place]:
            times = _times(names, alike, usual)
            return _Unforeseen(place, usual[-1], times) if place >= newest else None
        foretold += bool(usual)
        if place == newest - 1 and foretold < _FORETOLD * steady:
            return None
    return None


def _contexts(names: Sequence[Hashable], first: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each place from ``first`` on, and of those before it how much came before both alike.

    The n-th of these is how many operations before place n are those before this place.
    """
    alike = [_alike(names, place, first) for place in range(first)]
    for place in range(first, len(names)):
        yield place, alike
        name = names[place]
        alike = [0, *(one + 1 if names[at] == name else 0 for at, one in enumerate(alike))]


def _alike(names: Sequence[Hashable], one: int, other: int) -> int:
    count = 0
    while count < min(one, _CONTEXT) and names[one - count - 1] == names[other - count - 1]:
        count += 1
    return count


def _usual(names: Sequence[Hashable], alike: Sequence[int], times_min: int) -> list[int]:
    """Return where what came before has come before, if one name alone has followed it, always.

    As much of it is taken as has come so often; nothing is returned where nothing has.
    """
    context = nlargest(times_min, alike)[-1] if len(alike) >= times_min else 0
    return _only(names, alike, context) if context else []


def _times(names: Sequence[Hashable], alike: Sequence[int], usual: Sequence[int]) -> int:
    """Return how often that name has followed: after less of what came before it may be more."""
    for context in (1, 2, 4, 8, 16, 32, 64):
        more = _only(names, alike, context)
        if more and names[more[-1]] == names[usual[-1]]:
            return max(len(more), len(usual))
    return len(usual)


def _only(names: Sequence[Hashable], alike: Sequence[int], context: int) -> list[int]:
    """Return the places before which so much is alike; nothing where they have different names."""
    places = [at for at, one in enumerate(alike) if one >= context]
    return places if len({names[at] for at in places}) == 1 else []
