"""Objects with state_dict() and load_state_dict(), without torch."""

import random
from collections.abc import Mapping
from typing import cast

import numpy as np
import pytest

from everstep.copy_engine.views import MissingError, RestoreError, StateError
from everstep.state.capture import capture_of
from everstep.state.objects.random_state import RandomState
from everstep.state.plain import PlainCapture
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore


class Holder:
    def __init__(self, **values: object) -> None:
        self.values: Mapping[str, object] = values

    def state_dict(self) -> Mapping[str, object]:
        return self.values

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self.values = state


def saved(state: Mapping[str, object], place: Place | None = None) -> ShardStore:
    store = ShardStore()
    at = place or Place()
    store.save(at.rank, capture_of(state, at))
    return store


def test_a_state_of_arrays_alone_keeps_its_names_and_asks_for_no_description() -> None:
    capture = capture_of({"a": np.zeros(3)}, Place(2, 4))
    assert isinstance(capture, PlainCapture)
    assert [view.name for view in capture.views()] == ["a"]


def test_objects_are_private_to_their_rank_and_bring_their_random_numbers() -> None:
    names = list(saved({"x": Holder(w=np.zeros(3)), "plain": np.zeros(2)}, Place(2, 4)).copies[2])
    assert names[:3] == ["plain", "rank-2/x#tree", "rank-2/random#tree"]
    assert "rank-2/x/w" in names


def test_arrays_are_filled_where_they_are_and_made_where_they_are_not() -> None:
    values = {"w": np.arange(6.0).reshape(2, 3), "deep": [{"n": np.arange(3, dtype=np.int16)}]}
    store = saved({"x": Holder(**values), "plain": np.arange(4.0)})
    weight, plain = np.zeros((2, 3)), np.zeros(4)
    into = Holder(w=weight)
    store.restore(0, capture_of({"x": into, "plain": plain}, Place()))
    assert into.values["w"] is weight
    assert weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert plain.tolist() == [0, 1, 2, 3]
    (deep,) = cast(
        list[dict[str, "np.ndarray[tuple[int], np.dtype[np.int16]]"]], into.values["deep"]
    )
    assert deep["n"].tolist() == [0, 1, 2]
    assert deep["n"].dtype == np.int16


def test_arrays_that_cannot_be_written_to_are_copied_and_replaced() -> None:
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    store = saved({"x": Holder(fixed=fixed, turned=np.arange(6.0).reshape(2, 3).T)})
    into = Holder(fixed=np.broadcast_to(np.zeros(1), 4), turned=np.zeros((2, 3)).T)
    store.restore(0, capture_of({"x": into}, Place()))
    assert np.array_equal(np.asarray(into.values["fixed"]), fixed)
    assert np.array_equal(np.asarray(into.values["turned"]), np.arange(6.0).reshape(2, 3).T)


def test_equal_objects_are_saved_in_shares_and_come_back_whole_in_any_world() -> None:
    values = {f"w{n}": np.full(n + 1, float(n)) for n in range(7)}
    store = ShardStore()
    for rank in range(3):
        state = {"x": Holder(**values, step=5)}
        store.save(rank, capture_of(state, Place(rank, 3), equal=["x"]))
    names = [name for shards in store.copies.values() for name in shards if name[:2] == "x/"]
    assert sorted(names) == [f"x/w{n}" for n in range(7)]
    for size in (3, 2, 5):
        for rank in range(size):
            into = Holder()
            store.restore(rank, capture_of({"x": into}, Place(rank, size), equal=["x"]))
            assert into.values.pop("step") == 5  # type: ignore[attr-defined]
            for name, value in values.items():
                assert np.array_equal(np.asarray(into.values[name]), value)


def test_a_new_rank_does_not_draw_an_old_ones_random_numbers() -> None:
    store = saved({"x": Holder(a=1)}, Place(0, 1))
    state = random.getstate()
    into = Holder()
    store.restore(1, capture_of({"x": into}, Place(1, 2)))
    assert into.values == {"a": 1}
    assert random.getstate() == state


def test_an_object_that_was_not_saved_is_named() -> None:
    store = saved({"x": Holder(a=1)})
    with pytest.raises(MissingError, match="'y#tree' of rank 0"):
        store.restore(0, capture_of({"x": Holder(), "y": Holder()}, Place()))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"rank-3": Holder()}, "private parts"),
        ({"a[0]": Holder()}, "no name"),
        ({"x": Holder(a=np.array(["text"]))}, r"'x/a' is of dtype <U4, .* array\.view"),
        ({"x": Holder(a=np.array([None]))}, "'x/a' is an array of Python objects"),
        ({"x": Holder(a=np.array(["2026"], "M8[s]"))}, r"datetime64\[s\], .*array\.view"),
        ({"x": Holder(a=object())}, "'x/a' is a builtins.object"),
        ({"x": Holder(w=np.zeros(1)), "rank-0/x/w": np.zeros(1)}, "two parts"),
    ],
)
def test_what_cannot_be_saved_is_named_when_it_is_looked_at(
    state: Mapping[str, object], words: str
) -> None:
    with pytest.raises(StateError, match=words):
        capture_of(state, Place()).views()


def test_equal_must_name_an_object() -> None:
    with pytest.raises(StateError, match="equal names 'y'"):
        capture_of({"x": Holder()}, Place(), equal=["y"])


def test_own_random_state_replaces_the_one_that_is_included() -> None:
    generator = np.random.default_rng(1)
    capture = capture_of({"x": Holder(a=1), "noise": RandomState([generator])}, Place())
    names = {view.name for view in capture.views()}
    assert "rank-0/noise#tree" in names
    assert "rank-0/random#tree" not in names


def test_what_is_more_than_its_memory_or_has_no_end_is_named() -> None:
    endless: list[object] = []
    endless.append(endless)
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for value, words in ((endless, "'x' holds itself"), (masked, "'x/value' is a numpy.ma")):
        with pytest.raises(StateError, match=words):
            saved({"x": Holder(value=value)})


class Refusing(Holder):
    def load_state_dict(self, state: Mapping[str, object]) -> None:
        raise KeyError("scale")


def test_an_object_that_does_not_take_its_state_is_named() -> None:
    store = saved({"x": Holder(a=1)})
    with pytest.raises(RestoreError, match="'x' did not take its state, KeyError: 'scale'"):
        store.restore(0, capture_of({"x": Refusing()}, Place()))
