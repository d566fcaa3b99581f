"""State without arrays as typed JSON."""

import datetime
import enum
import io
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.copy_engine.views import StateError
from everstep.state import tree, tree_reader

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.tuples(st.integers(), st.text())
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.binary())
        | st.lists(inner, max_size=3).map(lambda items: deque(items, 5))
    ),
    max_leaves=20,
)


class NoArrays:
    def describe(self, path: str, value: object) -> object | None:
        return None

    def find(self, path: str, description: object) -> object:
        raise AssertionError(path)


def there_and_back(value: object) -> object:
    return tree_reader.read(tree.write(value, "x", NoArrays()), "x", NoArrays())


def typed(value: object) -> object:
    """Return what also tells apart values of different types that are equal."""
    if isinstance(value, dict):
        return type(value), [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [typed(item) for item in value]
    return type(value), repr(value) if isinstance(value, float | complex) else value


@given(TREES)
def test_every_tree_comes_back_with_its_types(value: object) -> None:
    assert typed(there_and_back(value)) == typed(value)


def test_numbers_keep_every_bit() -> None:
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 2**63, -(10**5000)]
    assert typed(there_and_back(values)) == typed(values)
    nan = there_and_back(math.nan)
    assert isinstance(nan, float)
    assert math.isnan(nan)
    assert there_and_back(random.getstate()) == random.getstate()


@pytest.mark.parametrize(
    "value",
    [np.float32(0.1), np.int64(-3), np.bool_(True), np.str_("é"), np.str_(""), np.bytes_(b"")],
)
def test_numpy_scalars_stay_numpy_scalars(value: np.generic) -> None:
    found = there_and_back({"a": value})
    assert isinstance(found, dict)
    assert type(found["a"]) is type(value)
    assert found["a"] == value


def test_counters_ranges_and_byte_arrays_come_back() -> None:
    values = [Counter({30: 1, 80: 2}), range(3, 50, 7), bytearray(b"\0\xff")]
    assert typed(there_and_back(values)) == typed(values)
    stream = there_and_back(io.BytesIO(b"extra state"))
    assert isinstance(stream, io.BytesIO)
    assert stream.read() == b"extra state"


class Colour(enum.IntEnum):
    RED = 1


class Words(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Colour.RED, "Colour"),
        (datetime.date(2026, 1, 1), "datetime.date"),
        (defaultdict(list), "collections.defaultdict"),
        (Words("a"), "Words"),
        (object(), "builtins.object"),
        (lambda: 1, "function"),
        (np.array([None]), "numpy.ndarray"),
        (np.void(b"abc"), r"numpy's dtype \|V3"),
        (np.ones((2, 2)).view(np.matrix), "matrix"),
    ],
)
def test_what_a_tree_cannot_hold_is_named_with_its_path(value: object, kind: str) -> None:
    with pytest.raises(StateError, match=rf"'x/deep/#1' is a .*{kind}"):
        there_and_back({"deep": [0, value]})


def test_a_key_that_is_no_scalar_is_named() -> None:
    with pytest.raises(StateError, match="'x' has a key"):
        there_and_back({object(): 1})


def test_the_room_stays_the_same_while_the_tree_grows_a_little() -> None:
    sizes = {len(tree.write({"step": 10**n}, "x", NoArrays())) for n in range(15)}
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"a":1,"b":2}',
        b'{"object":[]}',
        b'{"torch.dtype":"save"}',
        b"{}",
        b'{"int":5}',
        b"[" * 100_000,
        b"\xff",
        b'{"dict":[1]}',
    ],
)
def test_damaged_trees_are_an_error_and_nothing_else(content: bytes) -> None:
    with pytest.raises(StateError, match="structure of 'x' cannot be read"):
        tree_reader.read(content, "x", NoArrays())
