"""Dictionaries and lists of the script are parts of its state, and come back where they are."""

from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.copy_engine.views import RestoreError, StateError
from everstep.saving.early import Early
from everstep.state.capture import capture_of
from everstep.state.objects.containers import put_back
from everstep.state.shards.parts import Place
from everstep_common.printable import with_article
from fakes.shard_store import ShardStore


def restored(state: dict[str, object], into: dict[str, object]) -> None:
    store = ShardStore()
    store.save(0, capture_of(state, Place()))
    store.restore(0, capture_of(into, Place()))


def test_nested_arrays_and_numbers_come_back_into_the_same_dictionaries() -> None:
    layers = [np.arange(4.0), {"b": np.arange(3, dtype=np.int16)}]
    weight, bias = np.zeros(4), np.zeros(3, dtype=np.int16)
    inner: dict[str, object] = {"b": bias, "later": 1}
    params: dict[str, object] = {"layers": [weight, inner], "name": "none"}
    progress: dict[str, object] = {"epoch": 0}
    restored(
        {"params": {"layers": layers, "name": "net"}, "progress": {"epoch": 3, "best": 0.5}},
        {"params": params, "progress": progress},
    )
    assert progress == {"epoch": 3, "best": 0.5}
    assert params["name"] == "net"
    assert params["layers"][0] is weight  # type: ignore[index]
    assert params["layers"][1] is inner  # type: ignore[index]
    assert inner == {"b": bias}
    assert (weight.tolist(), bias.tolist()) == ([0, 1, 2, 3], [0, 1, 2])


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        ([1.5, "x", None, True], [0]),
        ({1, 2}, {3}),
        (deque([1, 2], 2), deque([0], 2)),
        (OrderedDict(a=1), OrderedDict(b=2)),
        (Counter("aab"), Counter("cc")),
        (defaultdict(int, {"a": 4}), defaultdict(int, {"a": 1, "b": 2})),
        ({}, {"a": 1}),
    ],
)
def test_containers_of_every_kind_hold_what_was_saved(saved: object, here: object) -> None:
    restored({"it": saved}, {"it": here})
    assert here == saved


def test_arrays_in_any_order_come_back_into_the_same_memory() -> None:
    saved = np.arange(6.0).reshape(2, 3)
    columns, every_other = np.zeros((2, 3), order="F"), np.zeros((2, 6))[:, ::2]
    there: dict[str, object] = {"columns": columns, "every_other": every_other}
    restored({"it": {"columns": np.asfortranarray(saved), "every_other": saved}}, {"it": there})
    assert there["columns"] is columns
    assert there["every_other"] is every_other
    assert columns.tolist() == every_other.tolist() == saved.tolist()


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(_VALUES, _VALUES)
def test_what_is_put_back_is_what_was_saved(here: object, saved: object) -> None:
    wanted = repr(saved)
    found = put_back(here, saved)
    assert repr(found) == wanted
    same = type(here) is type(saved) and isinstance(here, dict | list)
    assert (found is here) == (same or here is saved)


def test_a_container_of_another_kind_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"'it' did not take its state.* a list, not dict"):
        restored({"it": {"a": 1}}, {"it": [1]})


@pytest.mark.parametrize("constant", [3, 0.5, True, "text", None, b"bytes", (1, 2)])
def test_what_never_changes_is_refused_with_what_to_write(constant: object) -> None:
    kind = "None" if constant is None else with_article(type(constant).__name__)
    words = f"'epoch' of the state is {kind}, which cannot be restored in.* progress\\['epoch'\\]"
    with pytest.raises(StateError, match=words):
        capture_of({"epoch": constant}, Place())


def test_what_a_dictionary_cannot_hold_is_named_by_its_path() -> None:
    with pytest.raises(StateError, match=r"'it/x' is a builtins.object"):
        capture_of({"it": {"x": object()}}, Place()).views()


def test_a_dictionary_that_holds_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with pytest.raises(StateError, match="'it' holds itself"):
        capture_of({"it": loop}, Place()).views()


def test_equal_containers_are_shared_out_among_ranks() -> None:
    state = {"params": {str(n): np.full(4, float(n)) for n in range(8)}}
    store = ShardStore()
    for rank in range(4):
        names = store.save(rank, capture_of(state, Place(rank, 4), equal=["params"]))
        assert sum(name.startswith("params/") for name in names) == 2
    into = {"params": {str(n): np.zeros(4) for n in range(8)}}
    store.restore(1, capture_of(into, Place(1, 4), equal=["params"]))
    assert all((into["params"][str(n)] == n).all() for n in range(8))


def test_what_a_dictionary_holds_is_copied_before_training_goes_on() -> None:
    array = np.zeros(4)
    state = {"it": {"x": array}}
    shards = capture_of(state, Place()).views()
    detached = {shard.name: shard for shard in Early(state).detach(shards, None)}
    assert detached["rank-0/it/x"].address != array.ctypes.data
