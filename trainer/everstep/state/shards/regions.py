"""Regions of a tensor: the overlap of a wanted box with the boxes that are held."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """A box in a tensor."""

    begins: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return how many elements it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return ",".join(
            f"{begin}:{begin + extent}"
            for begin, extent in zip(self.begins, self.shape, strict=True)
        )


def whole(shape: tuple[int, ...]) -> Region:
    """Return the region that is all of the tensor."""
    return Region((0,) * len(shape), shape)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of two regions: its shape, and where it begins in the one and the other."""

    shape: tuple[int, ...]
    here: tuple[int, ...]
    there: tuple[int, ...]


def overlap(here: Region, there: Region) -> Overlap | None:
    """Return what the regions have in common; None: no element."""
    begins = tuple(map(max, here.begins, there.begins))
    ends = tuple(
        min(a + m, b + n)
        for a, m, b, n in zip(here.begins, here.shape, there.begins, there.shape, strict=True)
    )
    shape = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    if any(extent <= 0 for extent in shape):
        return None
    return Overlap(
        shape,
        tuple(begin - a for begin, a in zip(begins, here.begins, strict=True)),
        tuple(begin - b for begin, b in zip(begins, there.begins, strict=True)),
    )


def missing_count(wanted: Region, overlaps: Iterable[Overlap]) -> int:
    """Return how many elements of ``wanted`` are in none; parts of one tensor are disjoint."""
    return wanted.count - sum(math.prod(found.shape) for found in overlaps)


def span(shape: tuple[int, ...], begins: tuple[int, ...], part: tuple[int, ...]) -> int | None:
    """Return where a part begins in a row-major array, in elements; None: it is not in one piece.

    In one piece are parts that are full from some dimension on, and one element thick before it.
    """
    first_cut = next(
        (
            at
            for at, (extent, of) in reversed(list(enumerate(zip(part, shape, strict=True))))
            if extent != of
        ),
        0,
    )
    if any(extent != 1 for extent in part[:first_cut]):
        return None
    at = 0
    for begin, of in zip(begins, shape, strict=True):
        at = at * of + begin
    return at
