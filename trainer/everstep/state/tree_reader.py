"""Tree reader: typed JSON back into what a state_dict held."""

import base64
import importlib
import io
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import cast

from everstep.copy_engine.views import StateError
from everstep.state.objects.paths import join
from everstep.state.tree import NO_LEAVES, Leaves

# What wrong bytes, or a library that is not here, end in.
_DAMAGED = (
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    RecursionError,
    ImportError,
)


def read(content: bytes, path: str, leaves: Leaves) -> object:
    """Return the tree that `write` wrote. Raises StateError when it is not one."""
    try:
        return _decode(json.loads(content), path, leaves)
    except _DAMAGED as error:
        raise StateError(f"the saved structure of {path!r} cannot be read: {error}") from error


def _decode(node: object, path: str, leaves: Leaves) -> object:
    if isinstance(node, list):
        return _read_items(node, path, leaves)
    if not isinstance(node, dict):
        return node
    ((tag, content),) = node.items()
    if tag == "array":
        return leaves.find(path, content)
    if tag in _DICTS:
        return _DICTS[tag](_read_pairs(content, path, leaves))
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](_read_items(content, path, leaves))
    return _SCALARS[tag](content)


def _read_items(items: list[object], path: str, leaves: Leaves) -> list[object]:
    return [_decode(item, join(path, index), leaves) for index, item in enumerate(items)]


def _read_pairs(
    pairs: list[list[object]], path: str, leaves: Leaves
) -> list[tuple[object, object]]:
    found = []
    for key_node, item in pairs:
        key = _decode(key_node, path, NO_LEAVES)
        found.append((key, _decode(item, join(path, key), leaves)))
    return found


def _torch(name: str) -> Callable[[object], object]:
    def make(content: object) -> object:
        torch = importlib.import_module("torch")
        if name == "dtype":
            found = getattr(torch, str(content).removeprefix("torch."))
            if not isinstance(found, torch.dtype):
                raise ValueError(f"{content} is no dtype")
            return cast(object, found)
        return cast(object, getattr(torch, name)(content))

    return make


def _read_numpy(content: object) -> object:
    numpy = importlib.import_module("numpy")
    word, encoded = cast(list[str], content)
    dtype = numpy.dtype(word)
    if dtype.itemsize == 0:  # an empty text: frombuffer counts nothing by nothing
        return cast(object, dtype.type())
    return cast(object, numpy.frombuffer(base64.b64decode(encoded), dtype=dtype)[0])


def _read_float(content: object) -> object:
    return float(cast(str, content))


_DICTS: dict[str, Callable[[list[tuple[object, object]]], object]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(cast(list[tuple[object, int]], pairs))),
}
_SEQUENCES: dict[str, Callable[[list[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": lambda items: deque(cast(list[object], items[1]), cast(int | None, items[0])),
    "range": lambda items: range(*cast(list[int], items)),
    "complex": lambda items: complex(*cast(list[float], items)),
    "torch.Size": _torch("Size"),
}
_SCALARS: dict[str, Callable[[object], object]] = {
    "int": lambda content: int(cast(str, content), 16),
    "float": _read_float,
    "bytes": lambda content: base64.b64decode(cast(str, content)),
    "bytearray": lambda content: bytearray(base64.b64decode(cast(str, content))),
    "BytesIO": lambda content: io.BytesIO(base64.b64decode(cast(str, content))),
    "torch.dtype": _torch("dtype"),
    "torch.device": _torch("device"),
    "numpy": _read_numpy,
}
