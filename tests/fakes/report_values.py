"""Values of reports within their bounds, at them and beyond them, derived from the records."""

import re
import typing
from dataclasses import is_dataclass
from enum import Enum

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from everstep_common.bounds import Bound, Digest, Integer, Items, Name, Text, problem_of
from everstep_proto.record_codec import hints_of, shape_of

_ITEMS_MAX = 4
# Some of them match each pattern.
_NAMES = ("demo", "a", "9" * 64, "llama-3.1_70B", "llama-1042", "/data/run", "node/check/1", "\n ü")
Sample = tuple[object, bool]


def records(kind: type) -> SearchStrategy[object]:
    """Return records of a kind that are within their bounds."""
    fields = {name: _values(hint) for name, hint in hints_of(kind).items()}
    return st.builds(kind, **fields).filter(lambda record: not problem_of(record))


def _values(hint: object) -> SearchStrategy[object]:
    shape = shape_of(hint)
    one = _one(shape.kind, shape.bound)
    if shape.items:
        most = shape.list_bound.most if isinstance(shape.list_bound, Items) else _ITEMS_MAX
        one = st.lists(one, max_size=min(_ITEMS_MAX, most)).map(tuple)
    return st.none() | one if shape.optional else one


def _one(kind: object, bound: Bound | None) -> SearchStrategy[object]:
    match bound:
        case Integer(low=low, high=high):
            return st.integers(low, high) | st.sampled_from([low, high])
        case Text(most=most):
            return st.text(max_size=min(most, 12)) | st.just("x" * most)
        case Name(pattern=pattern):
            return st.sampled_from([name for name in _NAMES if re.fullmatch(pattern, name)])
        case Digest(most_bytes=most):
            return st.sampled_from(["00", "5a" * most])
    if is_dataclass(kind):
        return records(typing.cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    return st.booleans() if kind is bool else st.integers(0, 2**40)


def plain(kind: type) -> typing.Any:  # noqa: ANN401 - any record
    """Return a record of a kind with the least of everything."""
    return kind(**{name: _plain(hint) for name, hint in hints_of(kind).items()})


def _plain(hint: object) -> object:
    shape = shape_of(hint)
    if shape.optional or shape.items:
        return None if shape.optional else ()
    return plain_one(shape.kind, shape.bound)


def plain_one(kind: object, bound: Bound | None) -> object:
    """Return the least value of a field that must have one."""
    match bound:
        case Integer(low=low, high=high):
            return min(max(low, 1), high)
        case Text():
            return ""
        case Name(pattern=pattern):
            return next(name for name in _NAMES if re.fullmatch(pattern, name))
        case Digest():
            return "00"
    if is_dataclass(kind):
        return plain(typing.cast("type", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    return False if kind is bool else 0


def samples_at_bounds(bound: Bound) -> list[Sample]:
    """Return values at, below and above the bounds of a field, and whether each is kept."""
    match bound:
        case Integer(low=low, high=high):
            return [(low, True), (high, True), (low - 1, False), (high + 1, False)]
        case Text(most=most):
            return [("", True), ("ü" * most, True)]
        case Name(pattern=pattern):
            # Some names may be left out.
            return [("\0", False), ("", bool(re.fullmatch(pattern, ""))), ("x" * 5000, False)]
        case Digest(most_bytes=most):
            return [("00" * most, True), ("00" * (most + 1), False), ("", False)]
    return [((), True)]
