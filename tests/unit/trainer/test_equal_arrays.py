"""Of arrays that are equal in all ranks each saves its share; a rank without any takes part."""

from collections.abc import Mapping

import numpy as np
import pytest

from everstep.copy_engine.views import Capture, StateError
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore

RANKS = 4
NAMES = [f"w{number}" for number in range(10)]


def state(value: float, rank: int) -> Mapping[str, object]:
    weights = {name: np.full(7 + number, value + number) for number, name in enumerate(NAMES)}
    return {**weights, f"own-{rank}": np.full(3, rank + value)}


def capture(value: float, rank: int, ranks: int = RANKS) -> tuple[Mapping[str, object], Capture]:
    made = state(value, rank)
    return made, capture_of(made, Place(rank, ranks), equal=NAMES)


def saved() -> ShardStore:
    store = ShardStore()
    for rank in range(RANKS):
        store.save(rank, capture(1.0, rank)[1])
    return store


def test_every_equal_array_is_saved_by_one_rank_and_nobody_saves_much_more() -> None:
    copies = saved().copies
    shared = [name for shards in copies.values() for name in shards if name in NAMES]
    assert sorted(shared) == sorted(NAMES)
    sizes = [sum(entry.size_bytes for entry, _ in shards.values()) for shards in copies.values()]
    assert max(sizes) <= 1.35 * sum(sizes) / RANKS
    assert all(f"own-{rank}" in copies[rank] for rank in range(RANKS))


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_rank_gets_all_of_them_back(ranks: int) -> None:
    store = saved()
    for rank in range(ranks):
        made, into = capture(0.0, rank, ranks)
        store.restore(rank, into)
        wanted = state(1.0, rank)
        assert all(np.array_equal(made[name], wanted[name]) for name in wanted)  # type: ignore[arg-type]


def test_a_rank_whose_share_is_empty_saves_that_it_has_none() -> None:
    names = []
    for rank in range(3):
        one = capture_of({"w": np.ones(3)}, Place(rank, 3), equal=["w"])
        assert not one.needs_description
        assert [name for name in one.targets(()).names] == ["w"]
        names.append([view.name for view in one.views()])
    assert names == [["w"], ["rank-1/#nothing"], ["rank-2/#nothing"]]


def test_a_state_without_parts_is_saved_and_asks_for_nothing() -> None:
    empty = capture_of({}, Place(2, 3))
    (view,) = empty.views()
    assert (view.name, view.size_bytes) == ("rank-2/#nothing", 1)
    assert empty.needs_description
    assert empty.targets(()).names == ()


def test_arrays_beside_objects_are_shared_as_well() -> None:
    for rank in range(2):
        mixed = {"w": np.ones(3), "progress": {"epoch": 1}}
        names = [view.name for view in capture_of(mixed, Place(rank, 2), equal=["w"]).views()]
        assert ("w" in names) == (rank == 0)
        assert not any("#nothing" in name for name in names)


def test_what_is_equal_has_to_be_there() -> None:
    with pytest.raises(StateError, match="equal names 'v', which is no part of the state"):
        capture_of({"w": np.ones(3)}, Place(), equal=["v"])
