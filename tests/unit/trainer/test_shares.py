"""Which of several equal ranks saves what."""

from hypothesis import given
from hypothesis import strategies as st

from everstep.state.shards.parts import (
    SHARES_MAX,
    Part,
    Place,
    Replicas,
    assign,
    shares_of,
    to_save,
)
from everstep.state.shards.regions import Region, whole

SIZES = st.lists(st.integers(0, 10**6), max_size=60)
WORLDS = st.integers(1, 40)


def part(path: str, size: int, replicas: Replicas | None) -> Part:
    return Part(path, None, "U8", whole((size,)), (size,), 1, replicas)


@given(SIZES, WORLDS)
def test_no_share_is_much_larger_than_another(sizes: list[int], world: int) -> None:
    shares = shares_of(world)
    loads = [0] * shares
    for size, share in zip(sizes, assign(sizes, shares), strict=True):
        loads[share] += size
    assert sum(loads) == sum(sizes)
    # The bound of every list schedule: the last tensor of a share came to the emptiest one.
    assert max(loads) <= sum(sizes) / shares + max(sizes, default=0)


@given(SIZES, WORLDS, st.randoms())
def test_every_equal_tensor_is_saved_by_some_rank_whatever_the_order(
    sizes: list[int], world: int, shuffle: object
) -> None:
    saved: dict[str, list[int]] = {}
    for rank in range(world):
        parts = [
            part(f"t{index}", size, Replicas("world", rank, world))
            for index, size in enumerate(sizes)
        ]
        shuffle.shuffle(parts)  # type: ignore[attr-defined]
        for one in to_save([*parts, part("own", 1, None)]):
            saved.setdefault(one.path, []).append(rank)
    assert saved.pop("own") == list(range(world))
    assert saved.keys() == {f"t{index}" for index in range(len(sizes))}
    for ranks in saved.values():
        assert [rank % SHARES_MAX for rank in ranks] == [ranks[0]] * len(ranks)


def test_groups_of_replicas_are_shared_out_apart() -> None:
    one, other = Replicas("a", 0, 2), Replicas("b", 1, 2)
    parts = [part("x", 9, one), part("y", 8, one), part("z", 5, other)]
    assert [kept.path for kept in to_save(parts)] == ["x"]


def test_an_empty_local_part_is_not_saved_but_an_empty_tensor_is() -> None:
    local = Part("local", None, "U8", Region((4, 0), (0, 3)), (4, 3), 1, None)
    assert [kept.path for kept in to_save([local, part("empty", 0, None)])] == ["empty"]


def test_parts_are_named_by_rank_group_and_region() -> None:
    private = part("m/w", 4, None)
    assert private.tensor_name(Place(3, 8)) == "rank-3/m/w"
    shared = Part("m/w", None, "F32", Region((2,), (2,)), (4,), 4, Replicas("", 0, 1), "@ab")
    assert shared.tensor_name(Place(3, 8)) == "m/w@ab"
    assert shared.size_bytes == 8
