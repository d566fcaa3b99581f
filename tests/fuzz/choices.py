"""Choices: what a case is made of, read from bytes that the fuzzing engine mutates.

The same bytes make the same case. When they are used up every choice is the first one, so shapes
put what is plain and valid first, and every case ends.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reader of an engine's bytes, one choice after the other."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, count: int) -> int:
        """Return a number from 0 to below ``count``, at most 65,536."""
        at = self._at
        if count <= 256:
            self._at = at + 1
            return self._data[at] % count if at < len(self._data) else 0
        self._at = at + 2
        return int.from_bytes(self._data[at : at + 2], "big") % count

    def of(self, options: Sequence[T]) -> T:
        """Return one of these."""
        return options[self.below(len(options))]

    def rarely(self, one_in: int) -> bool:
        """Return True once in so many times; not when the bytes are used up."""
        return self.below(one_in) == one_in - 1

    def bytes(self, most: int) -> bytes:
        """Return some bytes as they are, fewer when they are used up."""
        count = self.below(most + 1)
        begin = self._at
        self._at = begin + count
        return self._data[begin : begin + count]


# Makes a part of a case.
Maker = Callable[[Choices], T]


def option(*values: T) -> Maker[T]:
    """Return what chooses one of these values."""
    return lambda choices: choices.of(values)


def several(make: Maker[T], most: int) -> Maker[list[T]]:
    """Return what makes none to so many."""
    return lambda choices: [make(choices) for _ in range(choices.below(most + 1))]
