"""What a rank of a test world does with fewer tensors than there are ranks."""

import warnings
from typing import cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from everstep.checkpoint import VaultReader, VaultWriter
from fakes.shard_store import ShardStore, StoreRun


def tensors(value: float) -> dict[str, object]:
    return {"a": torch.full((5, 2), value), "b": torch.full((3,), value)}


def save_few() -> StoreRun:
    """Save two tensors that are equal in all ranks."""
    warnings.simplefilter("ignore")
    run = StoreRun(dist.get_rank(), ShardStore())
    save(tensors(7.0), storage_writer=VaultWriter(run).at(4))
    return run


def load_few(store: ShardStore) -> bool:
    """Load them, and return whether they are what was saved."""
    warnings.simplefilter("ignore")
    state = tensors(0.0)
    load(state, storage_reader=VaultReader(StoreRun(dist.get_rank(), store, step=4)))
    saved = tensors(7.0)
    return all(
        torch.equal(cast(torch.Tensor, state[n]), cast(torch.Tensor, saved[n])) for n in saved
    )
