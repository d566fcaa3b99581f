"""Some processes that are one torch.distributed world, for tests: each runs one function."""

import multiprocessing
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from everstep.copy_engine.views import Capture
from fakes.shard_store import ShardStore

T = TypeVar("T")
_TIMEOUT_S = 120
# One clean process has imported already what the ranks of all tests import; they are its forks.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo",  # the first step of an optimizer imports it
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.checkpoint.state_dict_loader",
        "torch.distributed.checkpoint.state_dict_saver",
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.nn.parallel",
        "everstep.checkpoint",
        "everstep.state.capture",
    ]
)


def run_world(size: int, folder: Path, function: Callable[..., T], *arguments: object) -> list[T]:
    """Return what ``function(*arguments)`` returned in every rank, in their order."""
    rendezvous = folder / uuid.uuid4().hex
    with ProcessPoolExecutor(size, mp_context=_CONTEXT) as pool:
        futures = [
            pool.submit(_rank, rank, size, str(rendezvous), function, arguments)
            for rank in range(size)
        ]
        return [future.result(_TIMEOUT_S) for future in futures]


def _rank(
    rank: int, size: int, rendezvous: str, function: Callable[..., T], arguments: tuple[object, ...]
) -> T:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=size)
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()


def saved(capture: Capture) -> ShardStore:
    """Return this rank's shards."""
    store = ShardStore()
    store.save(dist.get_rank(), capture)
    return store


def merged(stores: list[ShardStore]) -> ShardStore:
    """Return the shards of all ranks as one step."""
    return ShardStore({rank: shards for store in stores for rank, shards in store.copies.items()})
