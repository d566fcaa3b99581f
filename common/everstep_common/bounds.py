"""Field bounds: what a number, a text or a list in a message may be, and in which unit.

They stand beside a field's type, once: ``rank: Annotated[int, Integer(0, 2**31 - 1)]``. Whatever
reads the field from outside (a frame, a protobuf message) asks by `condition`, an expression in the
function that is compiled for the whole record; where it is false, the bound's `reader` says what is
wrong. The type itself is checked by the codec.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, get_args, get_origin

# The least and the largest number.
Range = tuple[int, int]
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

    It has at most so many characters. ``words`` say in the reader's terms what the pattern demands.
    """

    pattern: str
    most: int
    words: str
    option: str = ""

    def reader(self) -> Reader:
        """Return what refuses a text of another form."""
        matches, most = matcher(self.pattern), self.most

        def read(value: str) -> str:
            if len(value) <= most and matches(value):
                return value
            raise _unfit_text(value, self.words, self.option)

        return read


@dataclass(frozen=True, slots=True)
class Opaque:
    """A text that is opened or compared as it is, never cut: so many characters, none of them NUL.

    ``words`` say in the reader's terms what it is.
    """

    least: int
    most: int
    words: str
    option: str = ""

    def reader(self) -> Reader:
        """Return what refuses one that is shorter, longer or has a NUL."""
        least, most = self.least, self.most

        def read(value: str) -> str:
            if least <= len(value) <= most and "\0" not in value:
                return value
            raise _unfit_text(value, self.words, self.option)

        return read


def _unfit_text(value: str, words: str, option: str) -> MisfitError:
    told = f"{option} {value!r:.80}: expected" if option else f"{value!r:.80} is not"
    return MisfitError(f"{told} {words}")


@cache
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says whether all of a text matches; it remembers those that come again."""
    matches = re.compile(pattern).fullmatch
    return lru_cache(maxsize=256)(lambda text: matches(text) is not None)


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


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes as they are: at least and at most so many."""

    most: int
    least: int = 0

    def reader(self) -> Reader:
        """Return what refuses fewer or more."""
        least, most = self.least, self.most

        def read(value: bytes) -> bytes:
            if least <= len(value) <= most:
                return value
            raise MisfitError(f"{len(value)} bytes, not {least} to {most}")

        return read


Bound = Integer | Text | Name | Opaque | Digest | Items | Bytes


def condition(bound: Bound, value: str, matches: str = "", implied: Range | None = None) -> str:
    """Return the expression that is true where ``value``, an expression, is within a bound.

    ``matches`` is what a `Name`'s matcher is called there. ``implied`` are the numbers that a type
    can hold anyway. "" where nothing is to be asked.
    """
    match bound:
        case Integer(low=low, high=high):
            return _between(value, low, high, implied)
        case Text():
            return ""
        case Name(most=most):
            return f"len({value}) <= {most} and {matches}({value})"
        case Opaque(least=least, most=most):
            return f"{least} <= len({value}) <= {most} and '\\0' not in {value}"
        case Digest(least_bytes=least, most_bytes=most):
            return f"{2 * least} <= len({value}) <= {2 * most}"
        case Items(most=most):
            return f"len({value}) <= {most}"
        case Bytes(most=most, least=least):
            return f"{least} <= len({value}) <= {most}"


def _between(value: str, low: int, high: int, implied: Range | None) -> str:
    least, most = implied or (low - 1, high + 1)
    from_low = f"{low} <= " if low > least else ""
    to_high = f" <= {high}" if high < most else ""
    return f"{from_low}{value}{to_high}" if from_low or to_high else ""


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
