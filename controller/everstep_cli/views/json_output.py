"""JSON encoding of answers: keys are the field names of admin.proto, integers stay integers."""

import json
from collections.abc import Sequence

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
    for field in message.DESCRIPTOR.fields:
        absent = field.has_presence and not message.HasField(field.name)
        record[field.name] = None if absent else _plain(getattr(message, field.name))
    for flag, name in _OPTIONAL.items():
        if record.pop(flag, True) is False:
            record[name] = None
    return record


def to_json(message: Message) -> str:
    """Return a message as indented JSON."""
    return json.dumps(to_dict(message), indent=2, ensure_ascii=False)


def to_line(message: Message) -> str:
    """Return a message as JSON on one line, for streams."""
    return json.dumps(to_dict(message), ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, Message):
        return to_dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value
