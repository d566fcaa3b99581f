"""JSON codec: frozen dataclasses to JSON and back, checked against their type hints.

Supported field types: bool, int (64 bits), float, str, bytes (as hexadecimal), Enum, dataclasses,
``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]`` and ``dict[str, X]``. Anything else is a
programming error.
"""

import json
import typing
from dataclasses import dataclass
from functools import cache

from everstep_common.bounds import MisfitError, Reader, bound_of
from everstep_common.hints import hints_of, item_of
from everstep_common.json_readers import reader_of
from everstep_common.json_writers import writer_of

T = typing.TypeVar("T")


class CodecError(ValueError):
    """A value does not have the shape that the type demands; the message names the path to it."""


def json_text(value: object, kind: object = None) -> str:
    """Return a dataclass, or a value of another type hint, as JSON text without spaces."""
    return writer_of(kind or type(value))(value)


def to_json(value: object, kind: object = None) -> object:
    """Return the same as objects, for who goes on to change them."""
    return json.loads(json_text(value, kind))


def from_json(kind: type[T], value: object, path: str = "") -> T:
    """Return ``value`` as ``kind``. Raises CodecError for anything that does not fit."""
    known: type = kind
    try:
        return typing.cast("T", reader_of(known)(value))
    except MisfitError as error:
        raise CodecError(f"{path or kind.__name__}{error.where}: {error.problem}") from error


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reader of a field's value; ``item``, for a ``tuple[X, ...]``, of one item. CodecError."""

    value: Reader
    item: Reader | None


@cache
def field_readers(kind: type) -> dict[str, FieldReader]:
    """Return what reads the fields of a dataclass one by one, for one that comes in parts."""
    found: dict[str, FieldReader] = {}
    for name, hint in hints_of(kind).items():
        path = f"{kind.__name__}.{name}"
        # Of an annotated list the number of items is asked for, so it is read as a whole.
        item = None if bound_of(hint)[1] is not None else item_of(hint)
        one = None if item is None else _raising(reader_of(item), f"{path}[]")
        found[name] = FieldReader(_raising(reader_of(hint), path), one)
    return found


def _raising(read: Reader, path: str) -> Reader:
    def checked(value: object) -> object:
        try:
            return read(value)
        except MisfitError as error:
            raise CodecError(f"{path}{error.where}: {error.problem}") from error

    return checked
