"""JSON encoding of answers: keys are the field names of admin.proto, integers stay integers."""

import json
from enum import Enum, auto
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

# A field that is valid only when another is set becomes null, and the other one is left out.
_OPTIONAL = {
    "has_step": "step",
    "has_recoverable": "recoverable_step",
    "has_restored": "step_restored",
    "has_restore": "restore_step",
}


def to_dict(message: Message) -> dict[str, object]:
    """Return every field of a message, also those that hold their default; None for no value."""
    record: dict[str, object] = {}
    for name, kind in _fields(message.DESCRIPTOR):
        value = getattr(message, name)
        if kind is _Kind.PLAIN:
            record[name] = value
        elif kind is _Kind.PLAINS:
            record[name] = list(value)
        elif kind is _Kind.MESSAGES:
            record[name] = [to_dict(item) for item in value]
        elif not message.HasField(name):
            record[name] = None
        else:
            record[name] = value if kind is _Kind.OPTIONAL else to_dict(value)
    for flag, name in _OPTIONAL.items():
        if record.pop(flag, True) is False:
            record[name] = None
    return record


class _Kind(Enum):
    PLAIN = auto()
    PLAINS = auto()
    OPTIONAL = auto()
    MESSAGE = auto()
    MESSAGES = auto()


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, _Kind], ...]:
    """Return the fields of a message and what they hold: looked up once, not for each node."""
    return tuple((field.name, _kind(field)) for field in descriptor.fields)


def _kind(field: FieldDescriptor) -> _Kind:
    message = field.message_type is not None
    if field.is_repeated:
        return _Kind.MESSAGES if message else _Kind.PLAINS
    if message:
        return _Kind.MESSAGE
    return _Kind.OPTIONAL if field.has_presence else _Kind.PLAIN


def to_json(message: Message) -> str:
    """Return a message as indented JSON."""
    return json.dumps(to_dict(message), indent=2, ensure_ascii=False)


def to_line(message: Message) -> str:
    """Return a message as JSON on one line, for streams."""
    return json.dumps(to_dict(message), ensure_ascii=False)
