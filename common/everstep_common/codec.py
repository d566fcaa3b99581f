"""Frozen dataclasses to JSON and back, checked against their type hints; standard library only.

Supported field types: bool, int (64 bits), float, str, bytes (as hexadecimal), Enum, dataclasses,
``X | None``, ``tuple[X, ...]``, ``tuple[X, Y]`` and ``dict[str, X]``. Anything else is a
programming error.
"""

import types
import typing
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache

# What protobuf and SQLite can hold; a hostile 10**400 ends here and not in their middle.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

T = typing.TypeVar("T")


class CodecError(ValueError):
    """A value does not have the shape that the type demands; the message names the path to it."""


def to_json(value: object) -> object:
    """Return the JSON form of a dataclass, enum, tuple, mapping or plain value."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def from_json(kind: type[T], value: object, path: str = "") -> T:
    """Return ``value`` as ``kind``. Raises CodecError for anything that does not fit."""
    return typing.cast("T", _convert(kind, value, path or kind.__name__))


def _convert(kind: object, value: object, path: str) -> object:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert_optional(kind, value, path)
    if origin is tuple:
        return _convert_tuple(kind, value, path)
    if origin is dict:
        return _convert_dict(kind, value, path)
    if isinstance(kind, type):
        if is_dataclass(kind):
            return _convert_record(kind, value, path)
        if issubclass(kind, Enum):
            return _convert_enum(kind, value, path)
        return _convert_scalar(kind, value, path)
    raise TypeError(f"{path}: cannot convert to {kind!r}")


def _convert_scalar(kind: type, value: object, path: str) -> object:
    if kind is bytes and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise CodecError(f"{path}: expected hexadecimal bytes") from error
    if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
        raise CodecError(f"{path}: expected at most 64 bits")
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise CodecError(f"{path}: expected {kind.__name__}, got {_shown(value)}")
    if isinstance(value, str) and not _is_unicode(value):
        raise CodecError(f"{path}: expected Unicode text")
    return value


def _is_unicode(text: str) -> bool:
    # JSON can spell half of a surrogate pair, which nothing behind this can encode.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: object) -> str:
    return f"{value!r:.60}"


def _convert_enum(kind: type[Enum], value: object, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(repr(member.value) for member in kind)
        raise CodecError(f"{path}: expected one of {known}, got {_shown(value)}") from error


def _convert_optional(kind: object, value: object, path: str) -> object:
    if value is None:
        return None
    (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
    return _convert(inner, value, path)


def _convert_tuple(kind: object, value: object, path: str) -> tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise CodecError(f"{path}: expected a list, got {_shown(value)}")
    inner = typing.get_args(kind)
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_convert(inner[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if len(inner) != len(value):
        raise CodecError(f"{path}: expected {len(inner)} items, got {len(value)}")
    pairs = zip(inner, value, strict=True)
    return tuple(_convert(want, item, f"{path}[{i}]") for i, (want, item) in enumerate(pairs))


def _convert_dict(kind: object, value: object, path: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CodecError(f"{path}: expected a mapping, got {_shown(value)}")
    _, inner = typing.get_args(kind)
    return {str(key): _convert(inner, item, f"{path}.{key}") for key, item in value.items()}


def _convert_record(kind: type, value: object, path: str) -> object:
    if not isinstance(value, dict):
        raise CodecError(f"{path}: expected {kind.__name__}, got {_shown(value)}")
    hints = _hints(kind)
    for unknown in value.keys() - hints.keys():
        raise CodecError(f"{path}: unknown field {_shown(unknown)}")
    known = {name: _convert(hints[name], item, f"{path}.{name}") for name, item in value.items()}
    try:
        return kind(**known)
    except TypeError as error:
        raise CodecError(f"{path}: {error}") from error


@cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)
