"""Field bounds: what a number, a text or a list in a message may be, and in which unit.

They stand beside a field's type, once: ``rank: Annotated[int, Integer(0, 2**31 - 1)]``. Whatever
reads the field from outside (a frame, a protobuf message) compiles them to a closure and holds the
value to them; the type itself is checked by the reader.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

# Checks a value read from outside and returns it as the field keeps it. Raises MisfitError.
Reader = Callable[[Any], Any]


class MisfitError(Exception):
    """A value does not fit; ``where`` is the path to it, from the value that is read."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where

    def below(self, place: str) -> "MisfitError":
        """Return the same of the value that has it at this place."""
        return MisfitError(self.problem, place + self.where)


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from ``low`` to ``high``; ``option`` is what the user of a job changes."""

    low: int
    high: int
    unit: str = ""
    option: str = ""

    def reader(self) -> Reader:
        """Return what refuses a number outside of them."""
        low, high = self.low, self.high

        def read(value: int) -> int:
            if low <= value <= high:
                return value
            named = f"{self.option} {value}: expected" if self.option else f"{value} is not"
            raise MisfitError(f"{named} from {low} to {high}")

        return read


@dataclass(frozen=True, slots=True)
class Text:
    """Words for people, of at most so many characters: what is longer is cut."""

    most: int

    def reader(self) -> Reader:
        """Return what cuts a text that is longer."""
        most = self.most
        return lambda value: value if len(value) <= most else value[:most]


@dataclass(frozen=True, slots=True)
class Name:
    """A text that things are found by, never cut: all of it must match ``pattern``.

    ``words`` say in the reader's terms what the pattern demands.
    """

    pattern: str
    words: str
    option: str = ""

    def reader(self) -> Reader:
        """Return what refuses a text of another form."""
        matches = re.compile(self.pattern).fullmatch

        def read(value: str) -> str:
            if matches(value):
                return value
            named = f"{self.option} {value!r:.80}: expected"
            raise MisfitError(f"{named if self.option else f'{value!r:.80} is not'} {self.words}")

        return read


@dataclass(frozen=True, slots=True)
class Digest:
    """A hash of at most so many bytes, as hexadecimal text; protobuf carries the bytes."""

    most_bytes: int
    least_bytes: int = 1

    def reader(self) -> Reader:
        """Return what refuses a longer or shorter one."""
        least, most = 2 * self.least_bytes, 2 * self.most_bytes

        def read(value: str) -> str:
            if least <= len(value) <= most:
                return value
            told = f"not of {self.least_bytes} to {self.most_bytes}"
            raise MisfitError(f"a hash of {len(value) // 2} bytes, {told}")

        return read


@dataclass(frozen=True, slots=True)
class Items:
    """A list or mapping of at most so many items."""

    most: int

    def reader(self) -> Reader:
        """Return what refuses more."""
        most = self.most

        def read(value: Any) -> Any:  # noqa: ANN401 - whatever has a length
            if len(value) <= most:
                return value
            raise MisfitError(f"{len(value)} items are more than {most}")

        return read


Bound = Integer | Text | Name | Digest | Items


def bound_of(hint: object) -> tuple[Any, Bound | None]:
    """Return the type that a hint annotates, and its bound, if it has one."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *notes = get_args(hint)
    return kind, next((note for note in notes if isinstance(note, Bound)), None)


def problem_of(record: object) -> str:
    """Return what the fields of a record make impossible together; "" when nothing does."""
    problems: Callable[[], list[str]] | None = getattr(record, "problems", None)
    return "; ".join(problems()) if problems is not None else ""
