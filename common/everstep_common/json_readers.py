"""JSON readers: functions that read JSON values as a dataclass's types, made once for each type."""

import types
import typing
from dataclasses import is_dataclass
from enum import Enum
from functools import cache

from everstep_common.bounds import MisfitError, Reader, bound_of, problem_of

# The integers that protobuf and SQLite can hold; a hostile 10**400 is refused here already.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


@cache
def reader_of(kind: object) -> Reader:
    """Return what reads values of a type: its hints are looked at once, not for each value."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _bounded_reader(kind)
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


def _bounded_reader(hint: object) -> Reader:
    kind, bound = bound_of(hint)
    read_one = reader_of(kind)
    if bound is None:
        return read_one
    hold = bound.reader()
    return lambda value: hold(read_one(value))


def _scalar_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if type(value) is not kind:
            return _converted(kind, value)
        if kind is int and not _INT_MIN <= typing.cast(int, value) <= _INT_MAX:
            raise MisfitError("expected at most 64 bits")
        if kind is str and not _is_unicode(typing.cast(str, value)):
            raise MisfitError("expected Unicode text")
        return value

    return read


def _converted(kind: type, value: object) -> object:
    """Return what JSON writes as another type than it is."""
    if kind is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise MisfitError("expected hexadecimal bytes") from error
    if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
        raise MisfitError("expected at most 64 bits")
    if kind is float and type(value) is int:
        return float(value)
    raise MisfitError(f"expected {kind.__name__}, got {_shown(value)}")


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
            raise MisfitError(f"expected one of {known}, got {_shown(value)}") from error

    return read


def _optional_reader(kind: object) -> Reader:
    (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
    read_one = reader_of(inner)
    return lambda value: None if value is None else read_one(value)


def _tuple_reader(kind: object) -> Reader:
    inner = typing.get_args(kind)
    endless = len(inner) == 2 and inner[1] is Ellipsis
    readers = [reader_of(one) for one in (inner[:1] if endless else inner)]

    def read(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise MisfitError(f"expected a list, got {_shown(value)}")
        if endless:
            return _read_items(readers * len(value), value)
        if len(readers) != len(value):
            raise MisfitError(f"expected {len(readers)} items, got {len(value)}")
        return _read_items(readers, value)

    return read


def _read_items(readers: list[Reader], items: list[object] | tuple[object, ...]) -> object:
    found: list[object] = []
    try:
        for read, item in zip(readers, items, strict=True):
            found.append(read(item))
    except MisfitError as error:
        raise error.below(f"[{len(found)}]") from error
    return tuple(found)


def _dict_reader(kind: object) -> Reader:
    read_one = reader_of(typing.get_args(kind)[1])

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise MisfitError(f"expected a mapping, got {_shown(value)}")
        return {str(key): _read_at(f".{key}", read_one, item) for key, item in value.items()}

    return read


def _read_at(place: str, read: Reader, value: object) -> object:
    try:
        return read(value)
    except MisfitError as error:
        raise error.below(place) from error


def _record_reader(kind: type) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise MisfitError(f"expected {kind.__name__}, got {_shown(value)}")
        readers = _fields(kind)
        for unknown in value.keys() - readers.keys():
            raise MisfitError(f"unknown field {_shown(unknown)}")
        known: dict[str, object] = {}
        name = ""
        try:
            for name, item in value.items():
                known[name] = readers[name](item)
        except MisfitError as error:
            raise error.below(f".{name}") from error
        return made(kind, known)

    return read


def made(kind: type, known: dict[str, object]) -> object:
    """Return a record of fields that fit each for itself. Raises MisfitError."""
    try:
        record = kind(**known)
    except TypeError as error:
        raise MisfitError(str(error)) from error
    if problem := problem_of(record):
        raise MisfitError(problem)
    return record


@cache
def _fields(kind: type) -> dict[str, Reader]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: reader_of(hint) for name, hint in hints.items()}
