"""JSON codec: frozen dataclasses to JSON and back, checked against their type hints.

Supported field types: bool, int (64 bits), float, str, bytes (as hexadecimal), Enum, dataclasses,
``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]`` and ``dict[str, X]``. Anything else is a
programming error.
"""

import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache

from everstep_common.bounds import MisfitError, Reader
from everstep_common.json_readers import reader_of

# Types that JSON takes as they are. Compared by type, not by isinstance, which is slower: 10,000
# shards are 100,000 values.
_PLAIN = frozenset({bool, int, float, str, types.NoneType})

T = typing.TypeVar("T")


class CodecError(ValueError):
    """A value does not have the shape that the type demands; the message names the path to it."""


def to_json(value: object) -> object:
    """Return the JSON form of a dataclass, enum, tuple, mapping or plain value."""
    kind: type = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        items = typing.cast("tuple[object, ...]", value)
        return [item if type(item) in _PLAIN else to_json(item) for item in items]
    if (names := _names(kind)) is not None:
        return {name: to_json(getattr(value, name)) for name in names}
    return _rare_to_json(value)


def _rare_to_json(value: object) -> object:
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None: it is none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


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
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        inner = typing.get_args(hint)
        endless = typing.get_origin(hint) is tuple and inner[1:] == (Ellipsis,)
        path = f"{kind.__name__}.{name}"
        item = _raising(reader_of(inner[0]), f"{path}[]") if endless else None
        found[name] = FieldReader(_raising(reader_of(hint), path), item)
    return found


def _raising(read: Reader, path: str) -> Reader:
    def checked(value: object) -> object:
        try:
            return read(value)
        except MisfitError as error:
            raise CodecError(f"{path}{error.where}: {error.problem}") from error

    return checked
