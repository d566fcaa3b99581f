"""A rank whose private things are lost takes another's, where the script says that they will do."""

import random
from collections.abc import Mapping

import numpy as np
import pytest

from everstep.copy_engine.views import Capture, MissingError, StateError
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore

# One more than there are shares: ranks 0 and 16 save the same arrays.
RANKS = 17


class Model:
    """Weights that are equal in all ranks, and a count of its own in each."""

    def __init__(self, count: int, value: float) -> None:
        self.count = count
        self.weights = {f"w{index}": np.full(4, value + index) for index in range(32)}

    def state_dict(self) -> Mapping[str, object]:
        return {"count": self.count, **self.weights}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        assert isinstance(state["count"], int)
        self.count = state["count"]


def capture(model: Model, rank: int, *replaceable: str) -> Capture:
    state = {"model": model}
    return capture_of(state, Place(rank, RANKS), equal=["model"], replaceable=replaceable)


def saved(*replaceable: str) -> ShardStore:
    store = ShardStore()
    for rank in range(RANKS):
        store.save(rank, capture(Model(100 + rank, 0.5), rank, *replaceable))
    return store


def test_all_copies_of_a_rank_are_lost_and_the_rest_has_everything() -> None:
    store = saved("model", "random")
    del store.copies[0]
    random.seed(1)
    drawn, model = random.getstate(), Model(0, 0.0)
    store.restore(0, capture(model, 0, "model", "random"))
    assert model.count == 101
    assert all((model.weights[f"w{index}"] == 0.5 + index).all() for index in range(32))
    assert random.getstate() == drawn  # nobody draws another rank's numbers


def test_a_rank_that_has_its_own_takes_its_own() -> None:
    store, model = saved("model", "random"), Model(0, 0.0)
    store.restore(5, capture(model, 5, "model", "random"))
    assert model.count == 105


def test_a_step_that_was_saved_before_the_script_said_so_is_restored_too() -> None:
    store, model = saved(), Model(0, 0.0)
    store.restore(5, capture(model, 5, "model"))
    assert model.count == 105


def test_without_a_word_a_ranks_own_is_never_replaced() -> None:
    store = saved()
    del store.copies[0]
    with pytest.raises(MissingError, match="'model#tree' of rank 0"):
        store.restore(0, capture(Model(0, 0.0), 0))


def test_what_is_replaceable_has_to_be_an_object() -> None:
    with pytest.raises(StateError, match="replaceable names 'loader', which is no object"):
        capture(Model(0, 0.0), 0, "loader")
    with pytest.raises(StateError, match="replaceable: expected several names"):
        capture_of({"model": Model(0, 0.0)}, Place(), replaceable="model")
