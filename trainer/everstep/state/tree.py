"""Tree of a state_dict, less its arrays, as typed JSON: nothing in it is ever run (no pickle).

Scalars stand for themselves, a list for a list; everything else is an object with one key, its
type. Arrays are left to the caller: a leaf's place in the tree is its path.
"""

import base64
import io
import json
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Protocol, cast

from everstep.copy_engine.views import StateError
from everstep.state.objects.paths import PathError, join

# Beyond this, JSON readers of other languages round, and Python limits the digits it converts.
_INT_BITS = 64
# The slot keeps its size while the tree grows by a few digits.
_PADDED_BYTES_MIN = 1024


class Leaves(Protocol):
    """Handler of the arrays of a tree: takes each when it is written, returns it when read."""

    def describe(self, path: str, value: object) -> object | None:
        """Return what to write in an array's place, None when the value is no array."""
        ...

    def find(self, path: str, description: object) -> object:
        """Return the array that was written as ``description``."""
        ...


def write(value: object, path: str, leaves: Leaves) -> bytes:
    """Return the tree as bytes, padded. Raises StateError that names the path of what cannot be."""
    text = json.dumps(_encode(value, path, leaves), separators=(",", ":"), allow_nan=False)
    content = text.encode()
    room = max(_PADDED_BYTES_MIN, 1 << (len(content) - 1).bit_length())
    return content.ljust(room)


def _encode(value: object, path: str, leaves: Leaves) -> object:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    write_one = _WRITERS.get(kind)
    if write_one is None:
        if (leaf := leaves.describe(path, value)) is not None:
            return {"array": leaf}
        write_one = _foreign_writer(value)
    if write_one is None:
        raise StateError(
            f"{path!r} is a {type(value).__module__}.{type(value).__qualname__}, which a snapshot"
            " cannot hold; turn it into numbers, strings, arrays, lists or dicts in state_dict()"
        )
    return write_one(value, path, leaves)


def _write_int(value: object, path: str, leaves: Leaves) -> object:
    number = cast(int, value)
    return number if number.bit_length() < _INT_BITS else {"int": hex(number)}


def _write_float(value: object, path: str, leaves: Leaves) -> object:
    number = cast(float, value)
    return number if math.isfinite(number) else {"float": repr(number)}


def _write_items(items: Iterable[object], path: str, leaves: Leaves) -> list[object]:
    # A script's list of losses grows by one with every step: what needs no path gets none.
    return [
        _SCALARS[type(item)](item, "", leaves)
        if type(item) in _SCALARS
        else _encode(item, join(path, index), leaves)
        for index, item in enumerate(items)
    ]


def _write_same(value: object, path: str, leaves: Leaves) -> object:
    return value


def _write_list(value: object, path: str, leaves: Leaves) -> object:
    return _write_items(cast(list[object], value), path, leaves)


def _write_deque(value: object, path: str, leaves: Leaves) -> object:
    items = cast("deque[object]", value)
    return {"deque": [items.maxlen, _write_items(items, join(path, 1), leaves)]}


def _write_tagged(tag: str) -> "Writer":
    def write_items(value: object, path: str, leaves: Leaves) -> object:
        return {tag: _write_items(cast(Iterable[object], value), path, leaves)}

    return write_items


def _write_set(tag: str) -> "Writer":
    def write_items(value: object, path: str, leaves: Leaves) -> object:
        items = [_encode(item, path, NO_LEAVES) for item in cast("set[object]", value)]
        return {tag: sorted(items, key=json.dumps)}

    return write_items


def _write_dict(tag: str) -> "Writer":
    def write_pairs(value: object, path: str, leaves: Leaves) -> object:
        pairs: list[object] = []
        for key, item in cast(dict[object, object], value).items():
            try:
                below = join(path, key)
            except PathError as error:
                raise StateError(
                    f"{path!r} has a key that a snapshot cannot hold: {error}"
                ) from error
            name = key if type(key) is str else _encode(key, below, NO_LEAVES)
            pairs.append([name, _encode(item, below, leaves)])
        return {tag: pairs}

    return write_pairs


def _write_bytes(tag: str) -> "Writer":
    def write_bytes(value: object, path: str, leaves: Leaves) -> object:
        return {tag: base64.b64encode(cast(bytes, value)).decode()}

    return write_bytes


def _write_stream(value: object, path: str, leaves: Leaves) -> object:
    content = cast(io.BytesIO, value).getvalue()
    return {"BytesIO": base64.b64encode(content).decode()}


def _write_complex(value: object, path: str, leaves: Leaves) -> object:
    number = cast(complex, value)
    return {"complex": _write_items((number.real, number.imag), path, leaves)}


def _write_range(value: object, path: str, leaves: Leaves) -> object:
    numbers = cast(range, value)
    return {"range": [numbers.start, numbers.stop, numbers.step]}


class _NoLeaves:
    """Leaves of values that may hold no arrays: keys, and the items of sets."""

    def describe(self, path: str, value: object) -> object | None:
        return None

    def find(self, path: str, description: object) -> object:
        raise ValueError(f"an array as a key at {path!r}")


NO_LEAVES = _NoLeaves()
Writer = Callable[[object, str, Leaves], object]
_AS_THEY_ARE = frozenset({NoneType, bool, str})
_SCALARS: dict[type, Writer] = {
    **dict.fromkeys(_AS_THEY_ARE, _write_same),
    int: _write_int,
    float: _write_float,
}
_WRITERS: dict[type, Writer] = {
    **_SCALARS,
    complex: _write_complex,
    bytes: _write_bytes("bytes"),
    bytearray: _write_bytes("bytearray"),
    list: _write_list,
    tuple: _write_tagged("tuple"),
    set: _write_set("set"),
    frozenset: _write_set("frozenset"),
    deque: _write_deque,
    range: _write_range,
    io.BytesIO: _write_stream,
    dict: _write_dict("dict"),
    OrderedDict: _write_dict("OrderedDict"),
    Counter: _write_dict("Counter"),
}


def _foreign_writer(value: object) -> Writer | None:
    """Return how to write a value of torch or numpy, known by its type's name."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in ("torch.dtype", "torch.device"):
        return lambda value, path, leaves: {name: str(value)}
    if name == "torch.Size":
        return _write_tagged(name)
    # Not what only looks like a scalar: a matrix is an array of a class of its own.
    if any((one.__module__, one.__name__) == ("numpy", "generic") for one in kind.__mro__):
        return _write_numpy_scalar
    return None


class _NumpyScalar(Protocol):
    dtype: object

    def tobytes(self) -> bytes: ...


def _write_numpy_scalar(value: object, path: str, leaves: Leaves) -> object:
    scalar = cast(_NumpyScalar, value)
    if getattr(scalar.dtype, "kind", "O") not in "biufcSUmM":
        raise StateError(
            f"{path!r} is a scalar of numpy's dtype {scalar.dtype}, which a snapshot cannot hold;"
            f" make it a number of Python, float({path.rpartition('.')[2]}), or one of float64"
        )
    word = str(getattr(scalar.dtype, "str", ""))
    return {"numpy": [word, base64.b64encode(scalar.tobytes()).decode()]}
