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

import re
import types
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
    Items,
    MisfitError,
    Name,
    Reader,
    Text,
    bound_of,
)

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
    return _told_encoder(kind, f"_message({made})", known)


@cache
def body_encoder_of(
    kind: type, message: type, beside: tuple[str, ...] = ()
) -> Callable[[object], Any]:
    """Return what makes of a record the value that the constructor of a message around it takes.

    That is a dictionary, for a message that is put into another one is copied. What the fields
    ``beside`` hold is not in it. Raises WireError.
    """
    if not _is_seen(kind, beside):
        return encoder_of(kind, message, beside)
    given, known = _given(kind, message, beside)
    return _told_encoder(kind, _dictionary(given), known)


def _told_encoder(kind: type, made: str, known: dict[str, object]) -> Callable[[object], Any]:
    known |= {"_unfit": lambda error: WireError(f"{kind.__name__}: {error}")}
    lines = [
        f"try: return {made}",
        "except (ValueError, TypeError, AttributeError) as _error:",
        "    raise _unfit(_error) from _error",
    ]
    return _compiled("encode(_record)", lines, known)


@cache
def decoder_of(kind: type, message: type, beside: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return what makes a record of a message; it raises WireError.

    What the fields ``beside`` hold is not in the message: it is called with them after that.
    """
    read = _decoder(kind, message, beside)

    def decode(wire: Message, *others: object) -> object:
        try:
            return read(wire, *others)
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

    @property
    def is_mapping(self) -> bool:
        """Return whether it is a dictionary of texts."""
        return typing.get_origin(self.kind) is dict


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


@cache
def _nested_encoder(kind: type, message: type) -> Callable[[object], Any]:
    given, known = _given(kind, message)
    if _is_seen(kind):
        return _compiled("encode(_record)", [f"return {_dictionary(given)}"], known)
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
def _decoder(kind: type, message: type, beside: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return what makes a record of a message. Raises MisfitError.

    It fills the record's slots itself: `__init__` of a frozen dataclass takes three times as long.
    """
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__}.__post_init__ is not called"
    known: dict[str, object] = {
        "_MisfitError": MisfitError,
        "_new": object.__new__,
        "_kind": kind,
        "_refuse": _refuse,
        "_hold": _hold,
        "_read_all": _read_all,
    }
    lines = ["_record = _new(_kind)"]
    for field in fields(kind):
        known[f"_set_{field.name}"] = getattr(kind, field.name).__set__
        if field.name not in beside:
            lines += _read_field(_part(kind, field, message), known)
        lines.append(f"_set_{field.name}(_record, {field.name})")
    if hasattr(kind, "problems"):
        lines += ["if _found := _record.problems():", "    _refuse('; '.join(_found))"]
    head = f"decode({', '.join(['_wire', *beside])})"
    return _compiled(head, [*lines, "return _record"], known)


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
    if bound is not None:
        known[f"_of_{name}"] = bound.reader()
    read = [f"{name} = _wire.{name}"]
    match bound:
        case Integer(low=low, high=high):
            least, most = _RANGES[part.wire.type]
            beyond = [f"{name} < {low}"] if low > least else []
            beyond += [f"{name} > {high}"] if high < most else []
            return read + _held(name, " or ".join(beyond)) if beyond else read
        case Text(most=most):
            return [*read, f"if len({name}) > {most}: {name} = {name}[:{most}]"]
        case Digest(least_bytes=least, most_bytes=most):
            beyond = [f"not {2 * least} <= len({name}) <= {2 * most}"]
            return [f"{name} = _wire.{name}.hex()", *_held(name, *beyond)]
        case Name(pattern=pattern):
            known[f"_fits_{name}"] = re.compile(pattern).fullmatch
            return [*read, *_held(name, f"not _fits_{name}({name})")]
        case Items(most=most):
            return [f"{name} = dict(_wire.{name})", *_held(name, f"len({name}) > {most}")]
    return _read_unbounded(part, known)


def _read_unbounded(part: _Part, known: dict[str, object]) -> list[str]:
    name = part.name
    if part.shape.is_mapping:
        return [f"{name} = dict(_wire.{name})"]
    if convert := _converter(part):
        known[f"_of_{name}"] = convert
        return [
            f"try: {name} = _of_{name}(_wire.{name})",
            f"except _MisfitError as _error: raise _error.below('.{name}') from _error",
        ]
    return [f"{name} = _wire.{name}"]


def _held(name: str, beyond: str) -> list[str]:
    """Return the statement that has a bound word what is wrong with a value beyond it."""
    return [f"if {beyond}: _hold(_of_{name}, {name}, '.{name}')"]


def _read_list(part: _Part, known: dict[str, object]) -> list[str]:
    name, shape = part.name, part.shape
    lines = [f"{name} = _wire.{name}"]
    if isinstance(shape.list_bound, Items):
        known[f"_items_of_{name}"] = shape.list_bound.reader()
        most = shape.list_bound.most
        lines.append(f"if len({name}) > {most}: _hold(_items_of_{name}, {name}, '.{name}')")
    convert = shape.bound.reader() if shape.bound is not None else _converter(part)
    if isinstance(shape.bound, Digest):
        convert = _digest_reader(shape.bound)
    if convert is None:
        return [*lines, f"{name} = tuple({name})"]
    known[f"_of_{name}"] = convert
    return [*lines, f"{name} = _read_all(_of_{name}, {name}, '.{name}') if {name} else ()"]


def _hold(hold: Reader, value: object, where: str) -> None:
    """Have a bound judge a value. Raises MisfitError."""
    try:
        hold(value)
    except MisfitError as error:
        raise error.below(where) from error


def _read_all(read: Reader, items: Any, where: str) -> tuple[object, ...]:  # noqa: ANN401 - a repeated field
    """Return what the items of a list are. Raises MisfitError."""
    found: list[object] = []
    try:
        for item in items:
            found.append(read(item))
    except MisfitError as error:
        raise error.below(f"{where}[{len(found)}]") from error
    return tuple(found)


def _refuse(problem: str, where: str = "") -> typing.NoReturn:
    raise MisfitError(problem, where)


def _digest_reader(bound: Digest) -> Reader:
    hold = bound.reader()
    return lambda digest: hold(digest.hex())


def _converter(part: _Part) -> Reader | None:
    """Return what makes a record or member of one value on the wire; None: it is as it stays."""
    kind = part.shape.kind
    if is_dataclass(kind):
        return _decoder(typing.cast("type", kind), _message_of(part.wire))
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


def _compiled(head: str, body: list[str], known: Mapping[str, object]) -> Callable[..., Any]:
    """Return a function of these statements, as `dataclasses` makes its own ones.

    Nothing in them comes from outside: names of fields, and numbers of their bounds.
    """
    source = "\n".join([f"def {head}:", *(f"    {line}" for line in body)])
    made: dict[str, Any] = dict(known)
    exec(source, made)
    function: Callable[..., Any] = made[head.partition("(")[0]]
    return function


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
