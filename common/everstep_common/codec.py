"""Frozen dataclasses to JSON and back, checked against their type hints; standard library only.

Supported field types: bool, int (64 bits), float, str, bytes (as hexadecimal), Enum, dataclasses,
``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]`` and ``dict[str, X]``. Anything else is a
programming error.
"""

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache

# What protobuf and SQLite can hold; a hostile 10**400 ends here and not in their middle.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

# What JSON has as it is. Asked by type, not by isinstance: 10,000 shards are 100,000 values.
_PLAIN = frozenset({bool, int, float, str, types.NoneType})

T = typing.TypeVar("T")
Reader = Callable[[object], object]


class _MisfitError(Exception):
    """A value does not fit; ``where`` is the path to it, from the value that is read."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where

    def below(self, place: str) -> "_MisfitError":
        """Return the same of the value that has it at this place."""
        return _MisfitError(self.problem, place + self.where)


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
        return typing.cast("T", _reader(known)(value))
    except _MisfitError as error:
        raise CodecError(f"{path or kind.__name__}{error.where}: {error.problem}") from error


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads a field's value; ``item``, for a ``tuple[X, ...]``, one item of it. CodecError."""

    value: Reader
    item: Reader | None


@cache
def field_readers(kind: type) -> dict[str, FieldReader]:
    """Return what reads the fields of a dataclass one by one, for one that comes in parts."""
    found: dict[str, FieldReader] = {}
    for name, hint in typing.get_type_hints(kind).items():
        inner = typing.get_args(hint)
        endless = typing.get_origin(hint) is tuple and inner[1:] == (Ellipsis,)
        path = f"{kind.__name__}.{name}"
        item = _raising(_reader(inner[0]), f"{path}[]") if endless else None
        found[name] = FieldReader(_raising(_reader(hint), path), item)
    return found


def _raising(read: Reader, path: str) -> Reader:
    def checked(value: object) -> object:
        try:
            return read(value)
        except _MisfitError as error:
            raise CodecError(f"{path}{error.where}: {error.problem}") from error

    return checked


@cache
def _reader(kind: object) -> Reader:
    """Return what reads values of a type: its hints are looked at once, not for each value."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional_reader(kind)
    if origin is tuple:
        return _tuple_reader(kind)
    if origin is dict:
        return _dict_reader(kind)
    if isinstance(kind, type):
        if is_dataclass(kind):
            return _record_reader(kind)
        if issubclass(kind, Enum):
            return _enum_reader(kind)
        return _scalar_reader(kind)
    raise TypeError(f"cannot convert to {kind!r}")


def _scalar_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if type(value) is not kind:
            return _converted(kind, value)
        if kind is int and not _INT_MIN <= typing.cast(int, value) <= _INT_MAX:
            raise _MisfitError("expected at most 64 bits")
        if kind is str and not _is_unicode(typing.cast(str, value)):
            raise _MisfitError("expected Unicode text")
        return value

    return read


def _converted(kind: type, value: object) -> object:
    """Return what JSON writes as another type than it is."""
    if kind is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise _MisfitError("expected hexadecimal bytes") from error
    if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
        raise _MisfitError("expected at most 64 bits")
    if kind is float and type(value) is int:
        return float(value)
    raise _MisfitError(f"expected {kind.__name__}, got {_shown(value)}")


def _is_unicode(text: str) -> bool:
    # JSON can spell half of a surrogate pair, which nothing behind this can encode.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: object) -> str:
    return f"{value!r:.60}"


def _enum_reader(kind: type[Enum]) -> Reader:
    def read(value: object) -> object:
        try:
            return kind(value)
        except ValueError as error:
            known = ", ".join(repr(member.value) for member in kind)
            raise _MisfitError(f"expected one of {known}, got {_shown(value)}") from error

    return read


def _optional_reader(kind: object) -> Reader:
    (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
    read_one = _reader(inner)
    return lambda value: None if value is None else read_one(value)


def _tuple_reader(kind: object) -> Reader:
    inner = typing.get_args(kind)
    endless = len(inner) == 2 and inner[1] is Ellipsis
    readers = [_reader(one) for one in (inner[:1] if endless else inner)]

    def read(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise _MisfitError(f"expected a list, got {_shown(value)}")
        if endless:
            return _read_items(readers * len(value), value)
        if len(readers) != len(value):
            raise _MisfitError(f"expected {len(readers)} items, got {len(value)}")
        return _read_items(readers, value)

    return read


def _read_items(readers: list[Reader], items: list[object] | tuple[object, ...]) -> object:
    found: list[object] = []
    try:
        for read, item in zip(readers, items, strict=True):
            found.append(read(item))
    except _MisfitError as error:
        raise error.below(f"[{len(found)}]") from error
    return tuple(found)


def _dict_reader(kind: object) -> Reader:
    read_one = _reader(typing.get_args(kind)[1])

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _MisfitError(f"expected a mapping, got {_shown(value)}")
        return {str(key): _read_at(f".{key}", read_one, item) for key, item in value.items()}

    return read


def _read_at(place: str, read: Reader, value: object) -> object:
    try:
        return read(value)
    except _MisfitError as error:
        raise error.below(place) from error


def _record_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _MisfitError(f"expected {kind.__name__}, got {_shown(value)}")
        readers = _fields(kind)
        for unknown in value.keys() - readers.keys():
            raise _MisfitError(f"unknown field {_shown(unknown)}")
        known: dict[str, object] = {}
        name = ""
        try:
            for name, item in value.items():
                known[name] = readers[name](item)
        except _MisfitError as error:
            raise error.below(f".{name}") from error
        try:
            return kind(**known)
        except TypeError as error:
            raise _MisfitError(str(error)) from error

    return read


@cache
def _fields(kind: type) -> dict[str, Reader]:
    return {name: _reader(hint) for name, hint in typing.get_type_hints(kind).items()}
