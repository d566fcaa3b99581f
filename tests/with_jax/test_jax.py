"""JAX arrays, which never change: saved and restored through an object that holds the newest."""

import importlib
from collections.abc import Mapping

import numpy as np
import pytest

from everstep.copy_engine.views import RestoreError, StateError
from everstep.integrations.jax import Pytree
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore

jax = importlib.import_module("jax")
jnp = importlib.import_module("jax.numpy")


def params(seed: int) -> dict[str, object]:
    key = jax.random.key(seed)
    weights = jax.random.normal(key, (16, 4))
    return {"w": weights, "half": weights.astype(jnp.bfloat16), "n": jnp.int32(seed)}


def update(tree: object, x: object) -> object:
    """Return the parameters after one step, compiled."""
    return jax.jit(_descend)(tree, x)


def _descend(
    tree: Mapping[str, "np.ndarray[tuple[int, int], np.dtype[np.float32]]"], x: object
) -> object:
    return {**tree, "w": tree["w"] - 0.1 * jax.grad(_loss)(tree["w"], x)}


def _loss(w: object, x: object) -> object:
    return jnp.square(jnp.matmul(x, w)).mean()


def test_an_array_alone_is_refused_with_what_to_do() -> None:
    words = "cannot be restored in place; hand over an object.*integrations.jax.Pytree"
    with pytest.raises(StateError, match=words):
        capture_of({"w": jnp.zeros(3)}, Place()).views()
    with pytest.raises(StateError, match=f"'params' of the state is immutable.*{words}"):
        capture_of({"params": {"layers": [jnp.zeros(3)]}}, Place())


def test_a_held_tree_goes_on_from_its_snapshot_bit_for_bit() -> None:
    x = jnp.arange(32.0).reshape(2, 16)
    held = Pytree(params(1))
    for _ in range(3):
        held.tree = update(held.tree, x)
    store = ShardStore()
    store.save(0, capture_of({"params": held}, Place()))
    wanted = update(held.tree, x)

    again = Pytree(params(2))
    store.restore(0, capture_of({"params": again}, Place()))
    found = update(again.tree, x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert isinstance(one, jax.Array)


def test_leaves_of_another_tree_are_refused() -> None:
    store = ShardStore()
    store.save(0, capture_of({"params": Pytree({"w": jnp.zeros(3), "n": 4})}, Place()))
    again = Pytree({"w": jnp.ones(3), "n": 0})
    store.restore(0, capture_of({"params": again}, Place()))
    assert again.tree == {"w": again.tree["w"], "n": 4}  # type: ignore[index]
    for other in ({"v": jnp.zeros(3), "n": 4}, {"w": jnp.zeros(4), "n": 4}):
        with pytest.raises(RestoreError, match=r"only in one of the two trees|a leaf of shape"):
            store.restore(0, capture_of({"params": Pytree(other)}, Place()))
