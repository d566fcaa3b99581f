"""Which shards of a step hold what a rank wants."""

import pytest

from everstep.copy_engine.views import MissingError, RestoreError
from everstep.state.shards.holdings import Holdings
from everstep.state.shards.parts import Part, Place, Replicas
from everstep.state.shards.regions import Region, whole
from everstep_common.rank_messages import Entry

SHARED = Replicas("", 0, 1)


def entry(name: str, shape: tuple[int, ...] = (4,)) -> Entry:
    size = 4
    for extent in shape:
        size *= extent
    return Entry(name, 0, size, "F32", shape)


def piece(tensor: str, begin: int, end: int, of: int) -> Entry:
    count = end - begin
    return Entry(f"{tensor}[{begin}:{end}]", 0, 4 * count, "F32", (count,), tensor, (begin,), (of,))


def wanted(path: str, begin: int, end: int, of: int, **more: object) -> Part:
    region = Region((begin,), (end - begin,))
    return Part(path, None, "F32", region, (of,), 4, **more)  # type: ignore[arg-type]


def names(held: tuple[Entry, ...], part: Part, place: Place, source: int = 0) -> list[str]:
    return [piece.entry.name for piece in Holdings(held, place).pieces(part, source)]


def trees(*ranks: int) -> tuple[Entry, ...]:
    return tuple(Entry(f"rank-{rank}/m#tree", 0, 64, "U8", (64,)) for rank in ranks)


def test_only_shards_that_overlap_are_asked_for() -> None:
    held = (*trees(0, 1), piece("w", 0, 4, 10), piece("w", 4, 8, 10), piece("w", 8, 10, 10))
    part = wanted("w", 3, 8, 10, replicas=SHARED)
    assert names(held, part, Place(0, 2)) == ["w[0:4]", "w[4:8]"]


def test_a_missing_region_is_named() -> None:
    held = (*trees(0), piece("w", 0, 4, 10))
    with pytest.raises(MissingError, match=r"'w', region \[3:8\]: 4 of 5 elements are missing"):
        names(held, wanted("w", 3, 8, 10, replicas=SHARED), Place(0, 2))


def test_an_empty_region_needs_nothing() -> None:
    assert names(trees(0), wanted("w", 5, 5, 5, replicas=SHARED), Place(0, 2)) == []


def test_private_things_come_from_the_own_rank_first() -> None:
    held = (*trees(0, 1), entry("rank-0/w"), entry("rank-1/w"), entry("w"))
    part = Part("w", None, "F32", whole((4,)), (4,), 4)
    assert names(held, part, Place(1, 2), source=1) == ["rank-1/w"]
    assert names(held, wanted("w", 0, 4, 4, replicas=SHARED), Place(1, 2), 1) == ["w"]


@pytest.mark.parametrize(("before", "rank", "source"), [(4, 2, 2), (3, 3, 0), (3, 4, 1), (1, 4, 0)])
def test_a_new_rank_takes_the_place_of_an_old_one(before: int, rank: int, source: int) -> None:
    holdings = Holdings(trees(*range(before)), Place(rank, 5))
    assert holdings.source_rank("m#tree") == source


def test_what_is_private_by_nature_is_not_taken_from_another() -> None:
    assert Holdings(trees(0, 1), Place(2, 3)).source_rank("m#tree", own_only=True) is None


def test_with_one_rank_described_everyone_is_asked_for() -> None:
    with pytest.raises(MissingError):
        Holdings((entry("rank-2/x"),), Place(2, 3)).source_rank("m#tree", own_only=True)


def test_groups_of_ranks_are_told_apart() -> None:
    held = (*trees(0, 1), entry("w@aa"), entry("w@bb"))
    own = wanted("w", 0, 4, 4, replicas=SHARED, mark="@bb")
    assert names(held, own, Place(0, 2)) == ["w@bb"]
    other = wanted("w", 0, 4, 4, replicas=SHARED, mark="@cc")
    with pytest.raises(MissingError, match="2 groups of ranks hold one of that name"):
        names(held, other, Place(0, 2))
    alone = (*trees(0, 1), entry("w@aa"))
    assert names(alone, other, Place(0, 2)) == ["w@aa"]


def test_another_shape_or_dtype_is_refused() -> None:
    with pytest.raises(RestoreError, match=r"'w' was saved as .*\(5,\).* but is .*\(4,\)"):
        names((entry("w", (5,)),), wanted("w", 0, 4, 4, replicas=SHARED), Place(0, 1))


def test_a_shard_that_lies_about_itself_is_refused() -> None:
    liar = Entry("w[0:4]", 0, 8, "F32", (4,), "w", (0,), (4,))
    with pytest.raises(RestoreError, match="does not describe a part"):
        names((liar,), wanted("w", 0, 4, 4, replicas=SHARED), Place(0, 1))
