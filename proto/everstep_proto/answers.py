"""Answers: messages of the admin API, filled by the names of their fields from what is shown."""

from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def answer(message: type[M], *sources: object, **values: object) -> M:
    """Return a message with each field from ``values``, else from the first source that has it.

    An enum's member is shown as its value; None leaves the field at its default. Raises LookupError
    for a field that nobody has, so that none stays empty without anybody having decided it.
    """
    for name in message.DESCRIPTOR.fields_by_name:
        if name not in values:
            values[name] = _value(message, name, sources)
    return message(**{name: _shown(value) for name, value in values.items() if value is not None})


def _value(message: type[Message], name: str, sources: Iterable[object]) -> object:
    for source in sources:
        try:
            return getattr(source, name)
        except AttributeError:
            continue
    raise LookupError(f"nobody has the field {name} of {message.DESCRIPTOR.name}")


def _shown(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
