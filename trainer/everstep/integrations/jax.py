"""JAX arrays in a training state: `Pytree` holds the newest version of a tree of them."""

import importlib
from typing import Protocol, cast

import jax  # pyright: ignore[reportMissingImports]


class Pytree:
    """Tree of arrays that is saved; after a restore it has the same structure and new arrays.

    Each process saves the arrays that it can address as a whole.
    """

    def __init__(self, tree: object) -> None:
        self.tree = tree

    def state_dict(self) -> dict[str, object]:
        """Return the leaves, by their places in the tree."""
        return {place: _saved(leaf) for place, leaf in _leaves(self.tree)}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take the leaves; each goes to the devices where the one before it was.

        Raises ValueError for leaves of another tree.
        """
        leaves, structure = _leaves(self.tree), jax.tree.structure(self.tree)
        if others := sorted({place for place, _ in leaves} ^ state.keys()):
            raise ValueError(f"leaf {others[0]} is only in one of the two trees")
        placed = [_placed(state[place], leaf) for place, leaf in leaves]
        self.tree = jax.tree.unflatten(structure, placed)


class _Array(Protocol):
    """An array of JAX, or of numpy."""

    dtype: object
    shape: tuple[int, ...]
    sharding: object


def _leaves(tree: object) -> list[tuple[str, object]]:
    found, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in found]


def _saved(leaf: object) -> object:
    if not isinstance(leaf, jax.Array):
        return leaf
    numpy = importlib.import_module("numpy")  # JAX has brought it
    array = numpy.asarray(leaf)
    # bfloat16 is no number of numpy's: its bits are saved.
    saved: object = array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array
    return saved


def _placed(saved: object, leaf: object) -> object:
    if not isinstance(leaf, jax.Array):
        return saved
    numpy = importlib.import_module("numpy")
    here, array = cast(_Array, leaf), numpy.array(saved)
    dtype = numpy.dtype(here.dtype)
    if (array.shape, array.itemsize) != (here.shape, dtype.itemsize):
        raise ValueError(f"a leaf of shape {array.shape} was saved, but here it is {here.shape}")
    placed: object = jax.device_put(array.view(dtype), here.sharding)
    return placed
