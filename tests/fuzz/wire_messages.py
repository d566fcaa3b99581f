"""Shapes of protobuf messages, from their descriptors: a field that is added is fuzzed unasked."""

from collections.abc import Callable, Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from fuzz.choices import Choices, Maker, option
from fuzz.edits import edited
from fuzz.shapes import FLOATS, NUMBERS, OTHER_TEXTS, TEXTS, Known

_LEFT_OUT_ONE_IN = 12
_UNKNOWN_ONE_IN = 10
_LONG_ONE_IN = 24
_LENGTHS = (300, 65, 1001, 4)
_LONG_BYTES_MAX = 100_000
_DEPTH_MAX = 5
_UNSIGNED_32 = tuple(number for number in NUMBERS if number < 2**32)
_INTEGERS: Mapping[int, tuple[int, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: (*(n for n in NUMBERS if n < 2**31), -1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (*NUMBERS, -1, -(2**31), -(2**63)),
    FieldDescriptor.CPPTYPE_UINT32: (*_UNSIGNED_32, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (*NUMBERS, 2**64 - 1),
}
_BLOBS = (b"k" * 16, b"", b"\0", b"k" * 32, b"k" * 64, b"k" * 65, b"\xff" * 300)

_PLAIN = Choices(b"")
# Sets one field of a message.
_Setter = Callable[[Choices, Message], object]


def message_maker(descriptor: Descriptor, known: Known) -> Maker[Message]:
    """Return what makes messages: mostly valid ones, with their limits and without some fields."""
    filler = _MessageFiller(descriptor, known, 0)
    kind = GetMessageClass(descriptor)

    def make(choices: Choices) -> Message:
        message = kind()
        filler.fill(choices, message)
        return message

    return make


def encoded(message: Message, choices: Choices) -> bytes:
    """Return the bytes of a message, now and then edited."""
    return edited(message.SerializeToString(), choices)


class _MessageFiller:
    """Fills a message in, field by field; its fields are looked at when it is used first."""

    def __init__(self, descriptor: Descriptor, known: Known, depth: int) -> None:
        self._descriptor, self._known, self._depth = descriptor, known, depth
        self._plain: list[_Setter] | None = None
        self._groups: list[list[_Setter]] = []

    def fill(self, choices: Choices, message: Message) -> None:
        """Set most fields, and one of each group of which only one may be set."""
        if self._plain is None:
            fields = self._descriptor.fields
            self._plain = [self._setter(one) for one in fields if one.containing_oneof is None]
            groups = self._descriptor.oneofs
            self._groups = [[self._setter(one) for one in group.fields] for group in groups]
        for set_field in self._plain:
            if not choices.rarely(_LEFT_OUT_ONE_IN):
                set_field(choices, message)
        for group in self._groups:
            choices.of(group)(choices, message)

    def _setter(self, field: FieldDescriptor) -> _Setter:
        if field.message_type is None:
            return _scalar_setter(field, self._value(field))
        if self._depth >= _DEPTH_MAX:
            return lambda choices, message: None
        if field.message_type.GetOptions().map_entry:
            make = _mapping(field)
            return lambda choices, message: getattr(message, field.name).update(make(choices))
        filler = _MessageFiller(field.message_type, self._known, self._depth + 1)
        return _nested_setter(field, filler)

    def _value(self, field: FieldDescriptor) -> Maker[object]:
        usual, other = self._known.get(field.name), _scalar(field)
        if usual is None or type(usual(_PLAIN)) is not type(other(_PLAIN)):
            return other
        chosen = usual
        return lambda choices: (other if choices.rarely(_UNKNOWN_ONE_IN) else chosen)(choices)


def _scalar_setter(field: FieldDescriptor, make: Maker[object]) -> _Setter:
    if not field.is_repeated:
        return lambda choices, message: setattr(message, field.name, make(choices))

    def extend(choices: Choices, message: Message) -> None:
        values = [make(choices) for _ in range(choices.below(3))]
        if values and choices.rarely(_LONG_ONE_IN):
            values *= _times(len(str(values[0])), choices)
        getattr(message, field.name).extend(values)

    return extend


def _nested_setter(field: FieldDescriptor, filler: _MessageFiller) -> _Setter:
    def fill_one(choices: Choices, message: Message) -> None:
        held = getattr(message, field.name)
        held.SetInParent()
        filler.fill(choices, held)

    def fill_several(choices: Choices, message: Message) -> None:
        held = getattr(message, field.name)
        for _ in range(choices.below(3)):
            filler.fill(choices, held.add())
        if held and choices.rarely(_LONG_ONE_IN):
            held.extend([held[0]] * _times(held[0].ByteSize(), choices))

    return fill_several if field.is_repeated else fill_one


def _times(size_bytes: int, choices: Choices) -> int:
    """Return how often something of this size is repeated where a list is long."""
    return min(choices.of(_LENGTHS), _LONG_BYTES_MAX // (size_bytes + 1))


def _mapping(field: FieldDescriptor) -> Maker[object]:
    """Return what makes a mapping between scalars."""
    assert field.message_type is not None
    make_key, make_value = (_scalar(one) for one in field.message_type.fields)
    return lambda choices: {make_key(choices): make_value(choices) for _ in range(choices.below(4))}


def _scalar(field: FieldDescriptor) -> Maker[object]:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return option(*_INTEGERS[kind])
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        return option(*numbers[1:] * 3, numbers[0], 99, -1)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return option(False, True)
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return option(*FLOATS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return option(*_BLOBS)
    return option(*TEXTS * 3, *OTHER_TEXTS)
