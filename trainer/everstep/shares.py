"""Batch shares: the samples of the global batch that each rank takes, for any rank count. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that go through the model at once, by their index in the global batch."""

    samples: range
    # Times their mean loss: then the mean over the ranks of the sum over a rank's micro-batches is
    # the mean over the global batch, and so is the gradient that data-parallel ranks average.
    weight: float


@dataclass(frozen=True, slots=True)
class Share:
    """Work of one rank in a step; every rank has equally many micro-batches."""

    samples: range
    micro_batches: tuple[MicroBatch, ...]


def share_of(global_batch: int, micro_batch: int, rank: int, world_size: int) -> Share:
    """Return a rank's samples, in the fewest micro-batches of at most ``micro_batch`` samples.

    Collectives of the backward pass need equally many on every rank. A rank that has too few
    samples for that takes one once more, with weight 0. Raises ValueError.
    """
    for name, number in (("global_batch", global_batch), ("micro_batch", micro_batch)):
        if number < 1:
            raise ValueError(f"{name}: expected 1 or more, got {number}")
    own = _part(range(global_batch), rank, world_size)
    most = -(-global_batch // world_size)
    count = -(-most // micro_batch)
    spare = own[-1:] or range(global_batch - 1, global_batch)
    parts = (_part(own, index, count) for index in range(count))
    return Share(own, tuple(_micro(part, spare, world_size / global_batch) for part in parts))


def _part(whole: range, index: int, count: int) -> range:
    """Return the part of this index of ``count`` that differ by one sample at most."""
    least, longer = divmod(len(whole), count)
    first, last = (index * least + min(index, longer) for index in (index, index + 1))
    return whole[first:last]


def _micro(part: range, spare: range, weight_of_one: float) -> MicroBatch:
    return MicroBatch(part or spare, len(part) * weight_of_one)
