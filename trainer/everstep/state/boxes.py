"""Copies of tensor boxes that are not contiguous in memory, or lie on a GPU."""

import torch

from everstep.copy_engine.views import ShardView
from everstep.state.holdings import Piece
from everstep.state.parts import Part
from everstep.state.tensors import as_bytes, as_memory


def copy_box(part: Part, memory: ShardView, piece: Piece, address: int) -> None:
    """Copy what a shard at ``address`` has of a part, of any dtype: item by item, as bytes."""
    item = part.item_bytes
    if isinstance(memory.cuda, torch.Tensor):
        there = as_bytes(memory.cuda)
    else:
        there = as_memory(memory.address, part.region.count, item)
    here = as_memory(address, piece.region.count, item)
    to_box = there.view(*part.region.shape, item)
    from_box = here.view(*piece.region.shape, item)
    for dim, extent in enumerate(piece.overlap.shape):
        to_box = to_box.narrow(dim, piece.overlap.here[dim], extent)
        from_box = from_box.narrow(dim, piece.overlap.there[dim], extent)
    to_box.copy_(from_box)
