"""Record codec: records to protobuf messages and back, by the names of their fields.

A codec is compiled once for each pair of types, into one function each way that reads the fields
one after the other, as somebody would write it by hand; a bound that the wire cannot exceed is not
asked for. What a field is on the wire:

    int, bool, str, bytes      the same; the bounds of the record hold beyond those of the wire
    ``X | None``               a field with presence
    Enum                       the value whose name ends with the member's: PHASE_STARTED
    a hash (`Digest`)          bytes
    a record                   a message; one that must be there has no default
    ``tuple[X, ...]``          repeated
    ``dict[str, str]``         map
"""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from everstep_common.bounds import Bound, Digest, Integer, MisfitError, Reader, Text, bound_of

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
def encoder_of(kind: type, message: type) -> Callable[[object], Any]:
    """Return what makes a message of a record; it raises WireError."""
    make = _encoder(kind, message)

    def encode(record: object) -> object:
        try:
            return make(record)
        except (ValueError, TypeError, AttributeError) as error:
            raise WireError(f"{kind.__name__}: {error}") from error

    return encode


@cache
def decoder_of(kind: type, message: type) -> Callable[[Message], Any]:
    """Return what makes a record of a message; it raises WireError."""
    read = _decoder(kind, message)

    def decode(wire: Message) -> object:
        try:
            return read(wire)
        except MisfitError as error:
            raise WireError(f"{kind.__name__}{error.where}: {error.problem}") from error

    return decode


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


def shape_of(hint: object) -> Shape:
    """Return what a field's type hint says."""
    kind, bound = bound_of(hint)
    optional = typing.get_origin(kind) in (typing.Union, types.UnionType)
    if optional:
        (inner,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
        kind, bound = bound_of(inner)
    if typing.get_origin(kind) is tuple:
        inner, inner_bound = bound_of(typing.get_args(kind)[0])
        return Shape(inner, inner_bound, optional, items=True, list_bound=bound)
    return Shape(kind, bound, optional, items=False, list_bound=None)


def hints_of(kind: type) -> dict[str, object]:
    """Return the type hints of a record, with their bounds."""
    return typing.get_type_hints(kind, include_extras=True)


# --- to the wire ---------------------------------------------------------------------------------


@cache
def _encoder(kind: type, message: type) -> Callable[[object], Any]:
    wire, known = _fields_of(message), dict[str, object](_message=message)
    given = []
    for name, hint in hints_of(kind).items():
        shape, value = shape_of(hint), f"_record.{name}"
        if isinstance(shape.bound, Text) and not shape.items:
            most = shape.bound.most
            value = f"_text if len(_text := {value}) <= {most} else _text[:{most}]"
        elif convert := _value_encoder(shape, wire[name]):
            known[f"_{name}"] = convert
            value = f"_{name}({value})"
        given.append(f"{name}={value}")
    return _compiled("encode(_record)", [f"return _message({', '.join(given)})"], known)


def _value_encoder(shape: Shape, field: FieldDescriptor) -> Reader | None:
    convert = _one_encoder(shape, field)
    if convert is None:
        return None
    if shape.items:
        return lambda items: [convert(item) for item in items]
    return _unless_none(convert) if shape.optional else convert


def _one_encoder(shape: Shape, field: FieldDescriptor) -> Reader | None:
    """Return what makes one value what the wire takes; None: it is that already."""
    if isinstance(shape.bound, Text):
        return shape.bound.reader()
    if isinstance(shape.bound, Digest):
        return bytes.fromhex
    if is_dataclass(shape.kind):
        return _encoder(typing.cast("type", shape.kind), _message_of(field))
    if isinstance(shape.kind, type) and issubclass(shape.kind, Enum):
        assert field.enum_type is not None
        return enum_numbers(shape.kind, field.enum_type).__getitem__
    return None


# --- from the wire -------------------------------------------------------------------------------

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


@cache
def _decoder(kind: type, message: type) -> Callable[[Message], Any]:
    wire = _fields_of(message)
    known: dict[str, object] = {"_kind": kind, "_MisfitError": MisfitError, "_refuse": _refuse}
    lines, given = [], []
    for field in fields(kind):
        shape = shape_of(hints_of(kind)[field.name])
        lines += _field_lines(field, shape, wire[field.name], known)
        given.append(f"{field.name}={field.name}")
    made = f"_kind({', '.join(given)})"
    if not hasattr(kind, "problems"):
        return _compiled("decode(_wire)", [*lines, f"return {made}"], known)
    lines += [
        f"_record = {made}",
        "if _found := _record.problems():",
        "    _refuse('; '.join(_found))",
    ]
    return _compiled("decode(_wire)", [*lines, "return _record"], known)


def _field_lines(
    field: "Field[object]", shape: Shape, wire: FieldDescriptor, known: dict[str, object]
) -> list[str]:
    """Return the statements that read one field; what they call is added to ``known``."""
    name, default = field.name, None if field.default is MISSING else field.default
    if shape.bound is None and not shape.items and shape.kind in (bool, int, str, bytes):
        lines = [f"{name} = _wire.{name}"]
    elif isinstance(shape.bound, Text) and not shape.items:
        most = shape.bound.most
        lines = [f"{name} = _wire.{name}", f"if len({name}) > {most}: {name} = {name}[:{most}]"]
    else:
        lines = _checked_lines(name, shape, wire, known, default)
    if not (shape.optional or (is_dataclass(shape.kind) and not shape.items)):
        return lines
    absent = f"{name} = None" if shape.optional else f"_refuse('is missing', '.{name}')"
    present = [f"if not _wire.HasField('{name}'): {absent}", "else:"]
    return [*present, *(f"    {line}" for line in lines)]


def _checked_lines(
    name: str, shape: Shape, wire: FieldDescriptor, known: dict[str, object], default: object
) -> list[str]:
    known[f"_{name}"] = _value_decoder(shape, wire, default)
    called = [
        f"try: {name} = _{name}(_wire.{name})",
        f"except _MisfitError as _error: raise _error.below('.{name}') from _error",
    ]
    if not isinstance(shape.bound, Integer) or shape.items:
        return called
    # A bound that the type on the wire cannot exceed needs no test in the compiled code; a value
    # that fails one is given to the bound itself, which words the error.
    least, most = _RANGES[wire.type]
    low, high = shape.bound.low, shape.bound.high
    beyond = [f"{name} < {low}"] if low > least else []
    beyond += [f"{name} > {high}"] if high < most else []
    if not beyond:
        return [f"{name} = _wire.{name}"]
    return [
        f"{name} = _wire.{name}",
        f"if {' or '.join(beyond)}:",
        *(f"    {line}" for line in called),
    ]


def _refuse(problem: str, where: str = "") -> typing.NoReturn:
    raise MisfitError(problem, where)


def _value_decoder(shape: Shape, field: FieldDescriptor, default: object) -> Reader:
    convert = _one_decoder(shape, field, default)
    return _items_decoder(convert, shape.list_bound) if shape.items else convert or _same


def _same(value: object) -> object:
    return value


def _one_decoder(shape: Shape, field: FieldDescriptor, default: object) -> Reader | None:
    """Return what makes of one value on the wire what the record holds; None: it is that."""
    if isinstance(shape.bound, Digest):
        hold = shape.bound.reader()
        return lambda digest: hold(digest.hex())
    if shape.bound is not None:
        return shape.bound.reader()
    if is_dataclass(shape.kind):
        return _decoder(typing.cast("type", shape.kind), _message_of(field))
    if isinstance(shape.kind, type) and issubclass(shape.kind, Enum):
        assert field.enum_type is not None
        return _enum_decoder(shape.kind, field.enum_type, default)
    return dict if typing.get_origin(shape.kind) is dict else None


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


def _items_decoder(convert: Reader | None, bound: Bound | None) -> Reader:
    hold = bound.reader() if bound is not None else None

    def read(items: Any) -> tuple[object, ...]:  # noqa: ANN401 - a repeated field
        if hold is not None:
            hold(items)
        if convert is None:
            return tuple(items)
        found: list[object] = []
        try:
            for item in items:
                found.append(convert(item))
        except MisfitError as error:
            raise error.below(f"[{len(found)}]") from error
        return tuple(found)

    return read


# -------------------------------------------------------------------------------------------------


def _compiled(head: str, body: list[str], known: Mapping[str, object]) -> Callable[..., Any]:
    """Return a function of these statements, as `dataclasses` makes its own ones.

    Nothing in them comes from outside: names of fields, and numbers of their bounds.
    """
    source = "\n".join([f"def {head}:", *(f"    {line}" for line in body)])
    made: dict[str, Any] = dict(known)
    exec(source, made)
    function: Callable[..., Any] = made[head.partition("(")[0]]
    return function


def _unless_none(convert: Reader) -> Reader:
    return lambda value: None if value is None else convert(value)


def _fields_of(message: type) -> Mapping[str, FieldDescriptor]:
    described: type[Message] = message
    return typing.cast("Mapping[str, FieldDescriptor]", described.DESCRIPTOR.fields_by_name)


def _message_of(field: FieldDescriptor) -> type:
    assert field.message_type is not None
    return GetMessageClass(field.message_type)
