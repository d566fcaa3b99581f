"""Parts of tensors against numpy's own slicing."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everstep.state.shards.regions import Region, missing_count, overlap, span, whole

SHAPES = st.lists(st.integers(1, 7), max_size=4).map(tuple)


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Region]:
    """Cut a tensor into a grid of boxes, some of them empty."""
    regions = [Region((), ())]
    for extent in shape:
        inner = draw(st.lists(st.integers(0, extent), max_size=3))
        ends = sorted([0, *inner, extent])
        regions = [
            Region((*region.begins, a), (*region.shape, b - a))
            for region in regions
            for a, b in itertools.pairwise(ends)
        ]
    return regions


@st.composite
def two_cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Region], list[Region]]:
    shape = draw(SHAPES)
    return shape, draw(cuts(shape)), draw(cuts(shape))


def box(region: Region) -> tuple[slice, ...]:
    return tuple(
        slice(begin, begin + extent)
        for begin, extent in zip(region.begins, region.shape, strict=True)
    )


@given(two_cuts())
def test_any_cut_is_put_together_from_any_other(
    case: tuple[tuple[int, ...], list[Region], list[Region]],
) -> None:
    shape, held, wanted = case
    tensor = np.arange(math.prod(shape)).reshape(shape)
    for here in wanted:
        target = np.full(here.shape, -1)
        found = [(there, common) for there in held if (common := overlap(here, there))]
        for there, common in found:
            source = tensor[box(there)]
            to_box, from_box = Region(common.here, common.shape), Region(common.there, common.shape)
            target[box(to_box)] = source[box(from_box)]
        assert np.array_equal(target, tensor[box(here)])
        assert missing_count(here, (common for _, common in found)) == 0


@given(two_cuts(), st.data())
def test_a_missing_part_is_counted(
    case: tuple[tuple[int, ...], list[Region], list[Region]], data: st.DataObject
) -> None:
    shape, held, _ = case
    gone = data.draw(st.sampled_from(held))
    rest = [overlap(whole(shape), there) for there in held if there is not gone]
    assert missing_count(whole(shape), [one for one in rest if one]) == gone.count


@given(two_cuts())
def test_a_span_is_where_the_box_lies_in_memory(
    case: tuple[tuple[int, ...], list[Region], list[Region]],
) -> None:
    shape, regions, _ = case
    tensor = np.arange(math.prod(shape)).reshape(shape)
    for region in regions:
        if region.count == 0:
            continue
        part = tensor[box(region)]
        first = int(part.reshape(-1)[0])
        in_one_piece = np.array_equal(part.reshape(-1), np.arange(first, first + region.count))
        assert span(shape, region.begins, region.shape) == (first if in_one_piece else None)


def test_regions_are_written_as_slices() -> None:
    assert str(Region((0, 64), (128, 64))) == "0:128,64:128"
    assert str(whole(())) == ""
