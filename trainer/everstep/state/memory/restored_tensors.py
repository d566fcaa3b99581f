"""Restored torch tensors: their memory, or new, and copies into parts of them."""

from collections.abc import Callable

import torch

from everstep.copy_engine.views import ShardView, StateError
from everstep.state.memory.arrays import is_dtensor
from everstep.state.memory.tensors import as_bytes, as_memory, dtype_of, tensor_view
from everstep.state.shards.holdings import Piece
from everstep.state.shards.parts import Part


def nothing() -> None:
    """Do nothing: the memory is the tensor's own."""


def new_tensor(
    path: str, word: str, shape: tuple[int, ...], like: object | None, *, distributed: bool
) -> torch.Tensor:
    """Return a tensor to be filled, placed as the one that it belongs to. Raises StateError."""
    dtype = dtype_of(word)
    if dtype is None:
        raise StateError(
            f"tensor {path!r} was saved with dtype {word!r}, which torch {torch.__version__} does"
            " not have: restore it with the version that saved it"
        )
    if not isinstance(like, torch.Tensor) or tuple(like.shape) != shape:
        if distributed:
            raise StateError(
                f"tensor {path!r} is distributed over ranks and does not exist here yet, so its"
                " placement is unknown; create it before the state is restored"
            )
        return torch.empty(shape, dtype=dtype)
    if is_dtensor(like):
        from everstep.state.memory.dtensors import (
            empty_like,  # an import that others need not pay for
        )

        return empty_like(like, dtype)
    return torch.empty(shape, dtype=dtype, device=like.device)


def writable(path: str, value: object) -> tuple[ShardView, Callable[[], None]]:
    """Return memory to fill for a (local) tensor, and what brings it into the tensor then."""
    assert isinstance(value, torch.Tensor)
    tensor = value.detach()
    if tensor.is_contiguous() and (tensor.is_cpu or tensor.is_cuda):
        return tensor_view(path, tensor), nothing
    staged = torch.empty(tensor.shape, dtype=tensor.dtype)

    def bring() -> None:
        _unexpanded(tensor).copy_(_unexpanded(staged, tensor))

    return tensor_view(path, staged), bring


def _unexpanded(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return one of those elements that, in ``like``, are the same number in memory."""
    for dim, stride in enumerate((tensor if like is None else like).stride()):
        if stride == 0 and tensor.shape[dim]:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


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
