"""Record codec: records to protobuf messages and back, by the names of their fields.

A codec is compiled once for each pair of types, into one function each way that reads the fields
one after the other, as somebody would write it by hand: bounds are comparisons in it, and one that
the wire cannot exceed is not asked for. What a field is on the wire:

    int, bool, str, bytes      the same; the bounds of the record hold beyond those of the wire
    ``X | None``               a field with presence
    Enum                       the value whose name ends with the member's: PHASE_STARTED
    a hash (`Digest`)          bytes
    a record                   a message; where it is absent its default stands, if it has one
    ``tuple[X, ...]``          repeated
    ``dict[str, str]``         map
"""

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from everstep_common.bounds import (
    Bound,
    Digest,
    Integer,
    MisfitError,
    Name,
    Range,
    Reader,
    Text,
    bound_of,
    condition,
    matcher,
)
from everstep_common.compiled import compiled, filling
from everstep_common.hints import hints_of, item_of, present_of

R = typing.TypeVar("R")
M = typing.TypeVar("M", bound=Message)


class WireError(ValueError):
    """The other side sent a message that cannot be used; one sentence says why."""


def to_wire(record: object, message: type[M]) -> M:
    """Return the message of a record. Raises WireError for a value that no message can hold."""
    kind: type = type(record)
    known: type = message
    made: M = encoder_of(kind, known)(record)
    return made


def from_wire(kind: type[R], wire: Message) -> R:
    """Return the record of a message. Raises WireError for one that breaks its bounds."""
    known: type = kind
    message: type = type(wire)
    made: R = decoder_of(known, message)(wire)
    return made


@cache
def encoder_of(kind: type, message: type, beside: tuple[str, ...] = ()) -> Callable[[object], Any]:
    """Return what makes a message of a record; what the fields ``beside`` hold is not in it.

    It raises WireError.
    """
    given, known = _given(kind, message, beside)
    known["_message"] = message
    made = ", ".join(f"{name}={value}" for name, value in given.items())
    return _told_encoder(f"_message({made})", known)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Message that has a record's message in one of its fields, and values of its own beside it.

    These are expressions of ``_record`` and of the ``arguments`` that the encoder is called with
    after it.
    """

    message: type
    values: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]


@cache
def enclosing_encoder_of(
    kind: type, name: str, envelope: Envelope, beside: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Return what makes of a record the envelope that has its message in the field ``name``.

    What the fields ``beside`` hold is not in that message. It raises WireError.
    """
    body = _message_of(_field_of(envelope.message, name))
    known: Mapping[str, object]
    if _is_seen(kind, beside):
        # A dictionary, for a message that is put into another one is copied.
        given, known = _given(kind, body, beside)
        made = _dictionary(given)
    else:
        made, known = "_body(_record)", {"_body": encoder_of(kind, body, beside)}
    known = {**known, "_message": envelope.message}
    values = [f"{field}={value}" for field, value in (*envelope.values, (name, made))]
    return _told_encoder(f"_message({', '.join(values)})", known, envelope.arguments)


def _told_encoder(
    made: str, known: Mapping[str, object], arguments: tuple[str, ...] = ()
) -> Callable[..., Any]:
    known = {**known, "_refusal": _refusal}
    lines = [
        f"try: return {made}",
        "except (ValueError, TypeError, AttributeError) as _error:",
        "    raise _refusal(_record, _error) from _error",
    ]
    return compiled(f"encode({', '.join(['_record', *arguments])})", lines, known)


@cache
def decoder_of(kind: type, message: type, beside: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return what makes a record of a message; it raises WireError.

    What the fields ``beside`` hold is not in the message: it is called with them after that.
    """
    lines, known = _decoding(kind, message, beside)
    known["_unfit"] = lambda error: WireError(f"{kind.__name__}{error.where}: {error.problem}")
    body = [
        "try:",
        *(f"    {line}" for line in lines),
        "except _MisfitError as _error:",
        "    raise _unfit(_error) from _error",
    ]
    return compiled(_decoder_head(beside), body, known)


def enum_numbers(kind: type[Enum], wire: EnumDescriptor) -> dict[Enum, int]:
    """Return the number on the wire of each member. Raises TypeError when one has none."""
    numbers = {value.name: value.number for value in wire.values}
    prefix = next(name for name, number in numbers.items() if not number)
    prefix = prefix.removesuffix("UNSPECIFIED")
    missing = [member.name for member in kind if prefix + member.name not in numbers]
    if missing:
        raise TypeError(f"{wire.full_name} has no {', '.join(missing)} of {kind.__name__}")
    return {member: numbers[prefix + member.name] for member in kind}


class Shape(typing.NamedTuple):
    """A field of a record: its innermost type and bound, and what is around them."""

    kind: Any
    bound: Bound | None
    optional: bool
    items: bool
    # The bound of the field's list, where the field is one.
    list_bound: Bound | None

    @property
    def is_mapping(self) -> bool:
        """Return whether it is a dictionary of texts."""
        return typing.get_origin(self.kind) is dict


def shape_of(hint: object) -> Shape:
    """Return what a field's type hint says."""
    kind, bound = bound_of(hint)
    present = present_of(kind)
    if present is not None:
        kind, bound = bound_of(present)
    if (item := item_of(kind)) is not None:
        inner, inner_bound = bound_of(item)
        return Shape(inner, inner_bound, present is not None, items=True, list_bound=bound)
    return Shape(kind, bound, present is not None, items=False, list_bound=None)


# --- to the wire ---------------------------------------------------------------------------------


def _given(
    kind: type, message: type, beside: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, object]]:
    """Return what each field is given on the wire, as an expression, and what these call."""
    known = dict[str, object](_bytes=bytes.fromhex)
    given = {
        name: _given_value(f"_record.{name}", name, shape_of(hint), _field_of(message, name), known)
        for name, hint in hints_of(kind).items()
        if name not in beside
    }
    return given, known


def _given_value(
    value: str, name: str, shape: Shape, wire: FieldDescriptor, known: dict[str, object]
) -> str:
    one = _given_one(name, shape, wire, known)
    if one == "{}":
        return value
    if shape.items:
        return f"[{one.format('_item')} for _item in {value}] if {value} else ()"
    if shape.optional:
        return f"None if (_value := {value}) is None else {one.format('_value')}"
    return one.format(value)


def _given_one(name: str, shape: Shape, wire: FieldDescriptor, known: dict[str, object]) -> str:
    """Return the expression that makes one value, written as {}, what the wire takes."""
    if isinstance(shape.bound, Text):
        most = shape.bound.most
        return f"(_text if len(_text := {{}}) <= {most} else _text[:{most}])"
    if isinstance(shape.bound, Digest):
        return "_bytes({})"
    if is_dataclass(shape.kind):
        known[f"_of_{name}"] = _nested_encoder(typing.cast("type", shape.kind), _message_of(wire))
        return f"_of_{name}({{}})"
    if isinstance(shape.kind, type) and issubclass(shape.kind, Enum):
        assert wire.enum_type is not None
        known[f"_of_{name}"] = enum_numbers(shape.kind, wire.enum_type)
        return f"_of_{name}[{{}}]"
    return "{}"


def _refusal(record: Any, error: Exception) -> WireError:  # noqa: ANN401 - any record
    """Return what is said of a record that no message can hold."""
    name = type(record).__name__
    try:
        _hold_all(record)
    except MisfitError as found:
        return WireError(f"{name}{found.where}: {found.problem}")
    except TypeError as found:
        return WireError(f"{name}: {found}")
    return WireError(f"{name}: {error}")


def _hold_all(record: Any) -> None:  # noqa: ANN401 - any record
    """Hold each value of a record to its bounds. Raises MisfitError; TypeError for another type."""
    kind: type = type(record)
    for name, hint in hints_of(kind).items():
        shape, value = shape_of(hint), getattr(record, name)
        for one in value if shape.items else (value,):
            if one is not None and is_dataclass(shape.kind):
                _hold(_hold_all, one, f".{name}")
            elif one is not None and shape.bound is not None:
                _hold(shape.bound.reader(), one, f".{name}")


@cache
def _nested_encoder(kind: type, message: type) -> Callable[[object], Any]:
    given, known = _given(kind, message)
    if _is_seen(kind):
        return compiled("encode(_record)", [f"return {_dictionary(given)}"], known)
    return encoder_of(kind, message)


def _is_seen(kind: type, beside: tuple[str, ...] = ()) -> bool:
    """Return whether a dictionary of a record always has a value, so that its message is there."""
    shapes = [shape_of(hint) for name, hint in hints_of(kind).items() if name not in beside]
    return any(not (one.optional or one.items or one.is_mapping) for one in shapes)


def _dictionary(given: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in given.items()) + "}"


# --- from the wire -------------------------------------------------------------------------------

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A field as it is read: its name, what the record says of it, and what it is on the wire."""

    name: str
    shape: Shape
    wire: FieldDescriptor
    default: object


@cache
def _nested_decoder(kind: type, message: type) -> Reader:
    """Return what makes a record of a message inside of another one. Raises MisfitError."""
    lines, known = _decoding(kind, message, ())
    return compiled(_decoder_head(()), lines, known)


def _decoder_head(beside: tuple[str, ...]) -> str:
    return f"decode({', '.join(['_wire', *beside])})"


def _decoding(
    kind: type, message: type, beside: tuple[str, ...]
) -> tuple[list[str], dict[str, object]]:
    """Return the statements that make a record of a message, and what these call."""
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__}.__post_init__ is not called"
    known: dict[str, object] = {
        "_MisfitError": MisfitError,
        "_refuse": _refuse,
        "_hold": _hold,
        "_read_all": _read_all,
    }
    lines: list[str] = []
    for field in fields(kind):
        if field.name in beside:
            lines += _held_beside(field.name, shape_of(hints_of(kind)[field.name]), known)
        else:
            lines += _read_field(_part(kind, field, message), known)
    lines += filling(kind, {field.name: field.name for field in fields(kind)}, known)
    if hasattr(kind, "problems"):
        lines += ["if _found := _record.problems():", "    _refuse('; '.join(_found))"]
    return [*lines, "return _record"], known


def _part(kind: type, field: "Field[object]", message: type) -> _Part:
    default = None if field.default is MISSING else field.default
    shape = shape_of(hints_of(kind)[field.name])
    return _Part(field.name, shape, _field_of(message, field.name), default)


def _read_field(part: _Part, known: dict[str, object]) -> list[str]:
    """Return the statements that read one field; what they call is added to ``known``."""
    name, shape = part.name, part.shape
    if shape.items:
        return _read_list(part, known)
    lines = _read_one(part, known)
    if not (shape.optional or is_dataclass(shape.kind)):
        return lines
    absent = f"_refuse('is missing', '.{name}')"
    if shape.optional or part.default is not None:
        known[f"_default_of_{name}"] = None if shape.optional else part.default
        absent = f"{name} = _default_of_{name}"
    present = [f"if not _wire.HasField('{name}'): {absent}", "else:"]
    return [*present, *(f"    {line}" for line in lines)]


def _read_one(part: _Part, known: dict[str, object]) -> list[str]:
    name, bound = part.name, part.shape.bound
    if convert := _converter(part):
        known[f"_of_{name}"] = convert
        return [
            f"try: {name} = _of_{name}(_wire.{name})",
            f"except _MisfitError as _error: raise _error.below('.{name}') from _error",
        ]
    value = f"_wire.{name}"
    if part.shape.is_mapping:
        value = f"dict({value})"
    elif isinstance(bound, Digest):
        value = f"{value}.hex()"
    return [f"{name} = {value}", *_held(name, bound, known, _RANGES.get(part.wire.type))]


def _held_beside(name: str, shape: Shape, known: dict[str, object]) -> list[str]:
    """Return the statements that hold a value to its bound that is handed over, as it is kept."""
    return [] if shape.items else _held(name, shape.bound, known)


def _held(
    name: str, bound: Bound | None, known: dict[str, object], implied: Range | None = None
) -> list[str]:
    """Return the statement that has a bound say what is wrong with a value beyond it."""
    if bound is None:
        return []
    if isinstance(bound, Text):
        return [f"if len({name}) > {bound.most}: {name} = {name}[:{bound.most}]"]
    if isinstance(bound, Name):
        known[f"_fits_{name}"] = matcher(bound.pattern)
    fits = condition(bound, name, f"_fits_{name}", implied)
    known[f"_bound_of_{name}"] = bound.reader()
    return [f"if not ({fits}): _hold(_bound_of_{name}, {name}, '.{name}')"] if fits else []


def _read_list(part: _Part, known: dict[str, object]) -> list[str]:
    name, shape = part.name, part.shape
    return [
        f"{name} = _wire.{name}",
        f"if not {name}: {name} = ()",
        "else:",
        *(f"    {line}" for line in _held(name, shape.list_bound, known)),
        *(f"    {line}" for line in _read_items(part, known)),
    ]


def _read_items(part: _Part, known: dict[str, object]) -> list[str]:
    """Return the statements that read the items of a list that has some."""
    name, bound = part.name, part.shape.bound
    if isinstance(bound, Digest):
        convert: Reader | None = _digest_reader(bound)
    else:
        convert = bound.reader() if bound is not None else _converter(part)
    if convert is None:
        return [f"{name} = tuple({name})"]
    known[f"_of_{name}"] = convert
    again = f"_read_all(_of_{name}, {name}, '.{name}')"
    if isinstance(bound, Integer):
        return [
            f"{name} = tuple({name})",
            f"if not {bound.low} <= min({name}) <= max({name}) <= {bound.high}: {again}",
        ]
    return [f"try: {name} = tuple(map(_of_{name}, {name}))", f"except _MisfitError: {again}"]


def _hold(hold: Reader, value: object, where: str) -> None:
    """Have a bound judge a value. Raises MisfitError."""
    try:
        hold(value)
    except MisfitError as error:
        raise error.below(where) from error


def _read_all(read: Reader, items: Any, where: str) -> None:  # noqa: ANN401 - a repeated field
    """Name the item of a list that does not fit. Raises MisfitError."""
    for number, item in enumerate(items):
        try:
            read(item)
        except MisfitError as error:
            raise error.below(f"{where}[{number}]") from error


def _refuse(problem: str, where: str = "") -> typing.NoReturn:
    raise MisfitError(problem, where)


def _digest_reader(bound: Digest) -> Reader:
    hold = bound.reader()
    return lambda digest: hold(digest.hex())


def _converter(part: _Part) -> Reader | None:
    """Return what makes a record or member of one value on the wire; None: it is as it stays."""
    kind = part.shape.kind
    if is_dataclass(kind):
        return _nested_decoder(typing.cast("type", kind), _message_of(part.wire))
    if isinstance(kind, type) and issubclass(kind, Enum):
        assert part.wire.enum_type is not None
        return _enum_decoder(kind, part.wire.enum_type, part.default)
    return None


def _enum_decoder(kind: type[Enum], wire: EnumDescriptor, default: object) -> Reader:
    members: dict[int, object] = {
        number: member for member, number in enum_numbers(kind, wire).items()
    }
    if isinstance(default, kind):
        members[0] = default

    def read(number: int) -> object:
        try:
            return members[number]
        except KeyError as error:
            known = ", ".join(member.name.lower() for member in kind)
            raise MisfitError(f"{number} is none of {known}") from error

    return read


# -------------------------------------------------------------------------------------------------


def _field_of(message: type, name: str) -> FieldDescriptor:
    described: type[Message] = message
    known = typing.cast("Mapping[str, FieldDescriptor]", described.DESCRIPTOR.fields_by_name)
    if name not in known:
        where = f"the message {described.DESCRIPTOR.name} has no field {name!r} of its record"
        raise TypeError(f"{where}; write it in the .proto file, and run `make proto`")
    return known[name]


def _message_of(field: FieldDescriptor) -> type:
    assert field.message_type is not None
    return GetMessageClass(field.message_type)
