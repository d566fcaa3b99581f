"""Shapes of JSON messages, from their dataclasses: valid values, their limits, and other types.

A message or a field that is added is fuzzed without a line here.
"""

import json
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum

from everstep_common.bounds import (
    Bound,
    Bytes,
    Digest,
    Integer,
    Items,
    Name,
    Opaque,
    Text,
    bound_of,
)
from everstep_common.frames import header
from everstep_common.hints import hints_of
from fuzz.choices import Choices, Maker, option
from fuzz.edits import edited

# Values of fields, by their name, that lead past what only compares them.
Known = Mapping[str, Maker[object]]

NUMBERS = (0, 1, 2, 3, 7, 255, 65535, 2**31 - 1, 2**31, 2**53 + 1, 10**18 - 1, 10**18, 2**63 - 1)
_OTHER_NUMBERS = (-1, -(2**31), -(2**63), -(2**63) - 1, 2**63, 2**64, 10**400)
TEXTS = ("a", "demo", "demo-1", "w", "layers.0.weight", "/tmp/x", "s3://bucket/prefix", "0" * 32)
OTHER_TEXTS = (
    "", " ", ".", "..", "../../etc/passwd", "a=b", "a\0b", "a\nb", "\x1b[2J", "é" * 300, "a" * 5000,
    "%s%n{0}", "-rf", "NaN", "1e999", "\u202egnp.exe", "\N{PILE OF POO}",
)  # fmt: skip
# JSON can write half of a pair, which is no text.
_HALVES = ("\ud800", "a\udfffb")
FLOATS = (0.0, 0.5, 1.0, -1.0, 1e-300, 1e300, float("nan"), float("inf"), float("-inf"))
JUNK: tuple[object, ...] = (
    None, True, False, *NUMBERS, *_OTHER_NUMBERS, *FLOATS, *OTHER_TEXTS, *_HALVES, [], {}, [[]],
    [None], {"type": "Join"}, {"": 0}, ["a"] * 300, [[[[[[[[]]]]]]]],
)  # fmt: skip
_LENGTHS = (0, 1, 1, 1, 1, 2, 3, 65, 300)
_REPEATED_BYTES_MAX = 32_768
# One field in so many is another one than `Known` says, and one record in so many lacks a field, or
# has one too many, or one of another type.
_UNKNOWN_ONE_IN = 8
_CHANGED_ONE_IN = 12
_LONG_ONE_IN = 16
_WRONG_LENGTHS = (0, 1, 3, 4096, 4097, 262144, 2**26, 2**26 + 1, 2**31, 2**32 - 1)


def value_of(hint: object, known: Known) -> Maker[object]:
    """Return what makes JSON values for a type: mostly valid ones."""
    kind, bound = bound_of(hint)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (present,) = (value_of(one, known) for one in inner if one is not types.NoneType)
        return lambda choices: present(choices) if choices.below(2) else None
    if origin is tuple and inner[1:] == (Ellipsis,):
        return _lists(value_of(inner[0], known), bound)
    if origin is tuple:
        makers = [value_of(one, known) for one in inner]
        return lambda choices: [make(choices) for make in makers]
    if origin in (list, frozenset):
        return _lists(value_of(inner[0], known), bound)
    if origin is dict:
        return _mappings(value_of(inner[1], known))
    if is_dataclass(kind):
        return record_of(typing.cast("type", kind), known)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return option(*(member.value for member in kind))
    return _scalar(typing.cast("type", kind), bound)


def record_of(kind: type, known: Known, name: str = "") -> Maker[dict[str, object]]:
    """Return what makes JSON objects of a dataclass, under the name of a message if it is one."""
    makers = {name: _field(name, hint, known) for name, hint in hints_of(kind).items()}
    names = list(makers)

    def make(choices: Choices) -> dict[str, object]:
        fields: dict[str, object] = {"type": name} if name else {}
        fields |= {field: maker(choices) for field, maker in makers.items()}
        if names and choices.rarely(_CHANGED_ONE_IN):
            _change(fields, choices.of(names), choices)
        return fields

    return make


def messages_of(kinds: Iterable[type], known: Known) -> Maker[dict[str, object]]:
    """Return what makes the JSON objects of one of these messages."""
    makers = [record_of(kind, known, kind.__name__) for kind in kinds]
    return lambda choices: choices.of(makers)(choices)


def payload(value: object) -> bytes:
    """Return JSON without spaces, as the product writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def frames_of(bodies: Maker[dict[str, object]]) -> Maker[bytes]:
    """Return what makes frames: some bodies are edited, some headers lie about their length."""

    def make(choices: Choices) -> bytes:
        content = edited(payload(bodies(choices)), choices)
        lies = choices.rarely(_LONG_ONE_IN)
        return header(choices.of(_WRONG_LENGTHS) if lies else len(content)) + content

    return make


def _field(name: str, hint: object, known: Known) -> Maker[object]:
    usual, other = known.get(name), value_of(hint, known)
    if usual is None:
        return other
    chosen = usual
    return lambda choices: (other if choices.rarely(_UNKNOWN_ONE_IN) else chosen)(choices)


def _change(fields: dict[str, object], name: str, choices: Choices) -> None:
    what = choices.below(3)
    if what == 0:
        del fields[name]
    else:
        fields[name if what == 1 else f"{name}_"] = choices.of(JUNK)


def _lists(make_item: Maker[object], bound: Bound | None) -> Maker[object]:
    """Return what makes short lists, and long ones of one item; at the limit where there is one."""
    most = (bound.most, bound.most + 1) if isinstance(bound, Items) else ()
    lengths = (*_LENGTHS, *most)

    def make(choices: Choices) -> list[object]:
        if not choices.rarely(_LONG_ONE_IN):
            return [make_item(choices) for _ in range(choices.below(4))]
        item = make_item(choices)
        return [item] * min(choices.of(lengths), _REPEATED_BYTES_MAX // len(payload(item)))

    return make


def _mappings(make_value: Maker[object]) -> Maker[object]:
    keys = (*TEXTS, *OTHER_TEXTS, *_HALVES)
    return lambda choices: {choices.of(keys): make_value(choices) for _ in range(choices.below(3))}


def _scalar(kind: type, bound: Bound | None) -> Maker[object]:
    if kind is bool:
        return option(False, True)
    if kind is int:
        return option(*_integers(bound))
    if kind is float:
        return option(*FLOATS)
    if kind is bytes:
        return option(*(one.hex() for one in _digests(bound)), "0", "xy")
    if kind is not str:  # a type with a form of its own
        return option([], {}, *JUNK)
    return option(*TEXTS * 3, *_texts(bound), *_HALVES)


def _integers(bound: Bound | None) -> tuple[int, ...]:
    if not isinstance(bound, Integer):
        return (*range(8), *NUMBERS, *_OTHER_NUMBERS)
    within = [number for number in NUMBERS if bound.low <= number <= bound.high]
    return (*within * 4, bound.low, bound.high, bound.low - 1, bound.high + 1)


def _digests(bound: Bound | None) -> tuple[bytes, ...]:
    most = bound.most if isinstance(bound, Bytes) else 64
    return (b"", b"\0", b"k" * 16, b"k" * 32, b"k" * most, b"k" * (most + 1))


def _texts(bound: Bound | None) -> tuple[str, ...]:
    match bound:
        case Text(most=most) | Name(most=most) | Opaque(most=most):
            return ("a" * most, "a" * (most + 1), *OTHER_TEXTS)
        case Digest(most_bytes=most):
            return ("", "0" * 2 * most, "0" * (2 * most + 1))
        case _:
            return OTHER_TEXTS
