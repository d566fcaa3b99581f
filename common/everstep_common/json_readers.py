"""JSON readers: functions that read JSON values as a dataclass's types, made once for each type.

A record that is as its writer wrote it, every field there and within its bounds, is read by
statements compiled for its type. Any other is read field by field: to fill in defaults, or to say
what is wrong and where.
"""

import dataclasses
import re
import typing
from enum import Enum
from functools import cache
from operator import itemgetter

from everstep_common.bounds import (
    MisfitError,
    Name,
    Reader,
    Text,
    bound_of,
    condition,
    matcher,
    problem_of,
)
from everstep_common.compiled import compiled, filling, is_slotted
from everstep_common.hints import hints_of, item_of, present_of

# The integers that protobuf and SQLite can hold; a hostile 10**400 is refused here already.
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


@cache
def reader_of(kind: object) -> Reader:
    """Return what reads values of a type: its hints are looked at once, not for each value."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _bounded_reader(kind)
    if present := present_of(kind):
        return _optional_reader(present)
    if origin is tuple:
        return _tuple_reader(kind)
    if origin is dict:
        return _dict_reader(kind)
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
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


# JSON can spell half of a surrogate pair, which nothing behind this can encode.
_SURROGATE = re.compile("[\ud800-\udfff]")


def _is_unicode(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


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


def _optional_reader(present: object) -> Reader:
    read_one = reader_of(present)
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
    thorough = thorough_reader(kind)
    return _compiled_reader(kind, thorough) if is_slotted(kind) else thorough


def thorough_reader(kind: type) -> Reader:
    """Return what reads a record field by field, whatever is missing or wrong."""

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
    if missing := [name for name in _required(kind) if name not in known]:
        raise MisfitError(f"missing {', '.join(missing)}")
    record = kind(**known)
    if problem := problem_of(record):
        raise MisfitError(problem)
    return record


@cache
def _required(kind: type) -> tuple[str, ...]:
    """Return the fields that have no default."""
    return tuple(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )


@cache
def _fields(kind: type) -> dict[str, Reader]:
    return {name: reader_of(hint) for name, hint in hints_of(kind).items()}


# --- compiled ------------------------------------------------------------------------------------


def _compiled_reader(kind: type, thorough: Reader) -> Reader:
    """Return what reads a regular record at once, and leaves any other to ``thorough``."""
    hints = hints_of(kind)
    if not hints:
        return thorough
    known: dict[str, object] = {
        "_MisfitError": MisfitError,
        "_fields": itemgetter(*hints),
        "_is_unicode": _is_unicode,
        "_thorough": thorough,
    }
    fits = [f"type(_value) is dict and len(_value) == {len(hints)}"]
    fits += [one for name, hint in hints.items() if (one := _fits(hint, name, known))]
    values = {name: _kept(hint, name, known) for name, hint in hints.items()}
    done = ["return _record"]
    if hasattr(kind, "problems"):
        done = ["if not _record.problems(): return _record"]
    body = [
        "try:",
        f"    {', '.join(hints)} = _fields(_value)",
        "    if (",
        *(f"        {'and ' if number else ''}{one}" for number, one in enumerate(fits)),
        "    ):",
        *(f"        {line}" for line in [*filling(kind, values, known), *done]),
        "except (KeyError, TypeError, _MisfitError):",
        "    pass",
        "return _thorough(_value)",
    ]
    return compiled("read(_value)", body, known)


def _fits(hint: object, value: str, known: dict[str, object]) -> str:
    """Return the expression that is true of a JSON value that `_kept` makes the field's value of.

    "" where there is nothing to ask, or `_kept` asks itself.
    """
    kind, bound = bound_of(hint)
    if present := present_of(kind):
        fits = _fits(present, value, known)
        return f"({value} is None or {fits})" if fits else ""
    asked = [_is_plain(kind, value)] if kind in (bool, int, str) else []
    if item := item_of(kind):
        one = _fits(item, "_item", known)
        asked = [f"type({value}) is list"]
        asked += [f"(not {value} or all([{one} for _item in {value}]))"] if one else []
    if bound is not None:
        matches = f"_matches_{len(known)}"
        if isinstance(bound, Name):
            known[matches] = matcher(bound.pattern)
        asked.append(condition(bound, value, matches))
    elif kind is int:
        asked.append(f"{_INT_MIN} <= {value} <= {_INT_MAX}")
    return " and ".join(filter(None, asked))


def _is_plain(kind: typing.Any, value: str) -> str:  # noqa: ANN401 - a type
    is_kind = f"type({value}) is {kind.__name__}"
    return f"{is_kind} and ({value}.isascii() or _is_unicode({value}))" if kind is str else is_kind


def _kept(hint: object, value: str, known: dict[str, object]) -> str:
    """Return the expression that is what the field keeps of a JSON value that fits."""
    kind, bound = bound_of(hint)
    if present := present_of(kind):
        kept = _kept(present, value, known)
        return value if kept == value else f"None if {value} is None else {kept}"
    if isinstance(bound, Text):
        return f"{value} if len({value}) <= {bound.most} else {value}[:{bound.most}]"
    if kind in (bool, int, str):
        return value
    if item := item_of(kind):
        one = _kept(item, "_item", known)
        items = value if one == "_item" else f"[{one} for _item in {value}]"
        return f"tuple({items}) if {value} else ()"
    name = f"_read_{len(known)}"
    known[name] = reader_of(kind)
    return f"{name}({value})"
