"""JSON writers: functions that write values of a type as JSON text, compiled once for each type."""

import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from json.encoder import encode_basestring_ascii
from types import MappingProxyType

from everstep_common.bounds import bound_of
from everstep_common.compiled import compiled
from everstep_common.hints import hints_of, item_of, present_of

Writer = Callable[[typing.Any], str]

# What a value of a type is written by: an expression of the value, which is put in its place.
_SCALARS: Mapping[object, str] = MappingProxyType(
    {
        bool: "('true' if {} else 'false')",
        int: "_int({})",
        float: "_float({})",
        str: "_text({})",
        bytes: "_hex({})",
    }
)


@cache
def writer_of(hint: object) -> Writer:
    """Return what writes values of a type; its hints are looked at once, not for each value."""
    kind, _ = bound_of(hint)
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_writer(kind, "")
    known = _known()
    return compiled("write(_value)", [f"return {_written(hint, '_value', known)}"], known)


@cache
def message_writer_of(kind: type) -> Writer:
    """Return what writes records of a type as messages: the name of the type comes first."""
    if not is_dataclass(kind):
        raise TypeError(f"not a message: {kind.__name__}")
    return _record_writer(kind, f'"type":"{kind.__name__}"')


def _record_writer(kind: type, first: str) -> Writer:
    known = _known()
    parts = [
        f'"{name}":{{{_written(hint, f"_record.{name}", known)}}}'
        for name, hint in hints_of(kind).items()
    ]
    text = ",".join([first, *parts] if first else parts)
    return compiled("write(_record)", [f"return f'''{{{{{text}}}}}'''"], known)


def _written(hint: object, value: str, known: dict[str, object]) -> str:
    """Return the expression that is the JSON text of a value; what it calls is put into known."""
    kind, _ = bound_of(hint)
    if present := present_of(kind):
        return f"('null' if {value} is None else {_written(present, value, known)})"
    if item := item_of(kind):
        return _list_written(item, value, known)
    if kind in _SCALARS:
        return _SCALARS[kind].format(value)
    name = f"_write_{len(known)}"
    known[name] = _other_writer(kind)
    return f"{name}({value})"


def _list_written(item: object, value: str, known: dict[str, object]) -> str:
    one = _written(item, "_item", known)
    called = one.removesuffix("(_item)")
    items = f"map({called}, {value})" if called.isidentifier() else f"[{one} for _item in {value}]"
    return f"('[' + ','.join({items}) + ']' if {value} else '[]')"


def _other_writer(kind: typing.Any) -> Writer:  # noqa: ANN401 - a type, or what stands for one
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        writers = tuple(map(writer_of, inner))
        return lambda value: f"[{','.join([w(v) for w, v in zip(writers, value, strict=True)])}]"
    if typing.get_origin(kind) is dict:
        return _mapping_writer(writer_of(inner[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        texts = {member: json.dumps(member.value) for member in kind}
        return texts.__getitem__
    if isinstance(kind, type) and is_dataclass(kind):
        return writer_of(kind)
    raise TypeError(f"cannot write {kind!r} as JSON")


def _mapping_writer(write: Writer) -> Writer:
    def write_all(value: Mapping[str, object]) -> str:
        items = [f"{encode_basestring_ascii(str(k))}:{write(v)}" for k, v in value.items()]
        return f"{{{','.join(items)}}}"

    return write_all


def _known() -> dict[str, object]:
    return {
        "_text": encode_basestring_ascii,
        "_int": int.__repr__,
        "_float": _float_text,
        "_hex": _hex_text,
    }


# What JSON has no word for is written as the standard library does, and read by it.
_NOT_FINITE = MappingProxyType({"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"})


def _float_text(value: float) -> str:
    text = float.__repr__(value * 1.0)
    return _NOT_FINITE.get(text, text)


def _hex_text(value: bytes) -> str:
    return f'"{value.hex()}"'
