"""Compiled functions: the codecs' statements for one record type, as `dataclasses` makes its own.

Nothing in the statements comes from outside: they are made of the names of a record's fields and of
the numbers in their bounds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from types import MemberDescriptorType
from typing import Any


def compiled(head: str, body: Iterable[str], known: Mapping[str, object]) -> Callable[..., Any]:
    """Return the function of a head such as ``read(value)`` and statements; ``known`` it calls."""
    source = "\n".join([f"def {head}:", *(f"    {line}" for line in body)])
    made: dict[str, Any] = dict(known)
    exec(source, made)
    function: Callable[..., Any] = made[head.partition("(")[0]]
    return function


def is_slotted(kind: type) -> bool:
    """Return whether a record is its slots and nothing else, so that they can be filled."""
    if not is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return False
    return all(
        isinstance(getattr(kind, field.name, None), MemberDescriptorType) for field in fields(kind)
    )


def filling(kind: type, values: Mapping[str, str], known: dict[str, object]) -> list[str]:
    """Return the statements that make ``_record`` of an expression for each field.

    The slots are filled by plain assignment in an object of a twin class that is not frozen, which
    then becomes the record: `__init__` of a frozen dataclass takes four times as long.
    """
    twin: Any = type(
        f"_Open{kind.__name__}",
        (kind,),
        {
            "__slots__": (),
            "__setattr__": object.__setattr__,
            "__delattr__": object.__delattr__,
        },
    )
    known |= {"_new": object.__new__, "_twin": twin, "_kind": kind}
    filled = [f"_record.{name} = {value}" for name, value in values.items()]
    return ["_record = _new(_twin)", *filled, "_record.__class__ = _kind"]
