"""JAX arrays, which never change: saved and restored through an object that holds the newest."""

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pytest

from everstep.state.capture import capture_of
from everstep.state.parts import Place
from everstep.state.views import StateError
from fakes.shard_store import ShardStore

jax = importlib.import_module("jax")
jnp = importlib.import_module("jax.numpy")


class Held(Protocol):
    """What docs/snapshots.md tells users of JAX to write."""

    tree: object

    def state_dict(self) -> Mapping[str, object]: ...
    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


def documented() -> Callable[[object], Held]:
    text = (Path(__file__).parents[2] / "docs" / "snapshots.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(import jax\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(example, names)
    return cast("Callable[[object], Held]", names["Held"])


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
    with pytest.raises(StateError, match="it cannot be restored in place; hand over an object"):
        capture_of({"w": jnp.zeros(3)}, Place()).views()


def test_a_held_tree_goes_on_from_its_snapshot_bit_for_bit() -> None:
    x = jnp.arange(32.0).reshape(2, 16)
    hold = documented()
    held = hold(params(1))
    for _ in range(3):
        held.tree = update(held.tree, x)
    store = ShardStore()
    store.save(0, capture_of({"params": held}, Place()))
    wanted = update(held.tree, x)

    again = hold(params(2))
    store.restore(0, capture_of({"params": again}, Place()))
    found = update(again.tree, x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert isinstance(one, jax.Array)
