"""The shares of a global batch, for any number of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.run import init
from everstep.shares import MicroBatch, Share, share_of

SIZES = st.integers(1, 300)
WORLDS = st.integers(1, 40)


def shares(global_batch: int, micro_batch: int, world: int) -> list[Share]:
    return [share_of(global_batch, micro_batch, rank, world) for rank in range(world)]


@given(SIZES, SIZES, WORLDS)
def test_every_sample_is_taken_by_one_rank_in_their_order(
    batch: int, micro: int, world: int
) -> None:
    taken = [sample for share in shares(batch, micro, world) for sample in share.samples]
    assert taken == list(range(batch))


@given(SIZES, SIZES, WORLDS)
def test_the_micro_batches_that_count_are_the_ranks_samples(
    batch: int, micro: int, world: int
) -> None:
    for share in shares(batch, micro, world):
        counted = [n for one in share.micro_batches if one.weight for n in one.samples]
        assert counted == list(share.samples)


@given(SIZES, SIZES, WORLDS)
def test_ranks_have_equally_many_micro_batches_that_fit_and_never_an_empty_one(
    batch: int, micro: int, world: int
) -> None:
    found = shares(batch, micro, world)
    (count,) = {len(share.micro_batches) for share in found}
    assert (count - 1) * micro < max(len(share.samples) for share in found) <= count * micro
    sizes = [len(one.samples) for share in found for one in share.micro_batches]
    assert 1 <= min(sizes) <= max(sizes) <= micro


@given(SIZES, SIZES, WORLDS)
def test_the_weighted_mean_over_the_ranks_is_the_mean_over_the_batch(
    batch: int, micro: int, world: int
) -> None:
    values = [(7 * index * index + 3 * index) % 101 for index in range(batch)]
    sums = [
        sum(one.weight * sum(values[n] for n in one.samples) / len(one.samples) for one in ones)
        for ones in (share.micro_batches for share in shares(batch, micro, world))
    ]
    assert sum(sums) / world == pytest.approx(sum(values) / batch)


def test_a_rank_with_too_few_samples_takes_one_again_that_does_not_count() -> None:
    assert share_of(3, 1, 1, 2) == Share(
        range(2, 3), (MicroBatch(range(2, 3), 2 / 3), MicroBatch(range(2, 3), 0.0))
    )


def test_a_run_tells_the_share_of_its_own_rank() -> None:
    run = init({"RANK": "2", "WORLD_SIZE": "3"})
    assert run.share(96, 16) == share_of(96, 16, 2, 3)


@given(SIZES, st.integers(1, 16), st.data())
def test_a_batch_thought_of_per_rank_is_one_micro_batch_on_all_ranks_and_the_same_on_fewer(
    per_rank: int, wanted: int, data: st.DataObject
) -> None:
    world = data.draw(st.integers(1, wanted))
    runs = [
        init({"RANK": str(r), "WORLD_SIZE": str(world), "EVERSTEP_WORLD_SIZE_WANTED": str(wanted)})
        for r in range(world)
    ]
    ours = [run.share(run.world_size_wanted * per_rank, per_rank) for run in runs]
    assert sum(len(share.samples) for share in ours) == wanted * per_rank
    assert {len(share.micro_batches) for share in ours} == {-(-wanted // world)}


@pytest.mark.parametrize(("batch", "micro"), [(0, 8), (8, 0), (-1, 1)])
def test_a_batch_without_samples_is_refused(batch: int, micro: int) -> None:
    with pytest.raises(ValueError, match="expected 1 or more, got"):
        share_of(batch, micro, 0, 1)
