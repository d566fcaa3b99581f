"""Type hints of records: what a field is in itself, where it is optional, bounded or a list."""

import types
import typing
from functools import cache

from everstep_common.bounds import bound_of


@cache
def hints_of(kind: type) -> dict[str, object]:
    """Return the type hints of a record, with their bounds."""
    return typing.get_type_hints(kind, include_extras=True)


def present_of(kind: object) -> object:
    """Return what an optional type is where it is there; None: the type is not optional."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return None
    (present,) = (one for one in typing.get_args(kind) if one is not types.NoneType)
    return present


def item_of(hint: object) -> object:
    """Return what the items of a ``tuple[X, ...]`` are, with their bounds; None: it is no list."""
    kind, _ = bound_of(hint)
    if typing.get_origin(kind) is not tuple or typing.get_args(kind)[1:] != (Ellipsis,):
        return None
    item: object = typing.get_args(kind)[0]
    return item
