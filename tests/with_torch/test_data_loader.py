"""torchdata's StatefulDataLoader as a part of the state: the order of the data goes on."""

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import torch

from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore


class Loader(Protocol):
    def __iter__(self) -> Iterator[torch.Tensor]: ...


with warnings.catch_warnings():
    # It calls what this torch is about to drop.
    warnings.simplefilter("ignore")
    make_loader: Callable[..., Loader] = importlib.import_module(
        "torchdata.stateful_dataloader"
    ).StatefulDataLoader


def loader(workers: int, seed: int) -> Loader:
    # A generator of its own: else each iterator takes its seed from the global random numbers.
    source = torch.Generator().manual_seed(seed)
    return make_loader(range(40), batch_size=4, shuffle=True, num_workers=workers, generator=source)


@pytest.mark.filterwarnings("ignore:.*set_vital.*:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 3, 9])
def test_the_rest_of_an_epoch_and_the_next_one_come_as_they_would_have(
    workers: int, batches: int
) -> None:
    first = loader(workers, seed=1)
    iterator = iter(first)
    for _ in range(batches):
        next(iterator)
    store = ShardStore()
    store.save(0, capture_of({"data": first}, Place()))
    wanted = [batch.tolist() for batch in iterator]
    wanted_next = [batch.tolist() for batch in first]

    again = loader(workers, seed=2)
    store.restore(0, capture_of({"data": again}, Place()))
    assert [batch.tolist() for batch in again] == wanted
    if workers:  # without workers torchdata itself does not keep the order of the next epoch
        assert [batch.tolist() for batch in again] == wanted_next
