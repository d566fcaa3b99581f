"""torch DTensors (FSDP2, tensor parallelism): the local part of each, and who has it too."""

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from everstep.copy_engine.views import StateError
from everstep.state.memory.tensors import TensorMemory, format_of, memory_of, refuse_without_memory
from everstep.state.shards.parts import Part, Place, Replicas
from everstep.state.shards.regions import Region


def local_part(path: str, tensor: object, place: Place) -> Part:
    """Return what this process has of a DTensor. Raises StateError."""
    assert isinstance(tensor, DTensor)
    mesh, placements = tensor.device_mesh, tensor.placements
    refuse_placements(path, mesh, placements)
    with torch.no_grad():
        local = tensor.to_local()
    refuse_without_memory(path, local)
    whole = tuple(tensor.shape)
    shape, begins = compute_local_shape_and_global_offset(whole, mesh, placements)
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # this process takes no part in it
        shape, begins = (0,) * len(whole), (0,) * len(whole)
    if math.prod(shape) != local.numel():
        raise StateError(f"tensor {path!r} has other local memory than its placements say")
    return Part(
        path,
        local.view(shape) if local.numel() else local,
        format_of(tensor),
        Region(tuple(begins), tuple(shape)),
        whole,
        tensor.element_size(),
        _replicas(mesh, placements, coordinate or ()),
        _mark(mesh, place),
    )


class LocalMemory(NamedTuple):
    """Identity of a DTensor's memory: equal for DTensors that share it."""

    local: TensorMemory
    shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    mesh: int

    @property
    def address(self) -> int:
        """Return where the local part begins."""
        return self.local.address

    def is_of(self, tensor: object) -> bool:
        """Return whether it is `memory_of_local` the tensor."""
        return memory_of_local(tensor) == self


def memory_of_local(tensor: object) -> LocalMemory | None:
    """Return what DTensors have in common that are the same memory; None: it cannot be told."""
    assert isinstance(tensor, DTensor)
    with torch.no_grad():
        local = memory_of(tensor.to_local())
    if local is None:
        return None
    return LocalMemory(local, tensor.shape, tensor.placements, id(tensor.device_mesh))


def empty_like(like: object, dtype: torch.dtype) -> DTensor:
    """Return a new DTensor that is distributed as ``like`` is."""
    assert isinstance(like, DTensor)
    with torch.no_grad():
        local = torch.empty_like(like.to_local(), dtype=dtype)
        return DTensor.from_local(
            local,
            like.device_mesh,
            like.placements,
            run_check=False,
            shape=like.shape,
            stride=like.stride(),
        )


def refuse_placements(path: str, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> None:
    """Raise StateError when the local part is no box of the tensor."""
    for dim, placement in enumerate(placements):
        if isinstance(placement, _StridedShard):
            if placement.split_factor != _sharded_later(mesh, placements, dim):
                raise StateError(f"tensor {path!r} is sharded with strides: {placements}")
        elif not isinstance(placement, Shard | Replicate):
            raise StateError(f"tensor {path!r} is not reduced yet ({placement}); it has no value")


def _sharded_later(mesh: DeviceMesh, placements: tuple[Placement, ...], dim: int) -> int:
    """Return into how many parts later mesh dimensions cut the same dimension of the tensor."""
    cut = getattr(placements[dim], "dim", None)
    return math.prod(
        mesh.size(later)
        for later in range(dim + 1, mesh.ndim)
        if getattr(placements[later], "dim", None) == cut
    )


def _replicas(
    mesh: DeviceMesh, placements: tuple[Placement, ...], coordinate: Sequence[int]
) -> Replicas:
    index, count, dims = 0, 1, []
    for dim, (placement, at) in enumerate(zip(placements, coordinate, strict=False)):
        if isinstance(placement, Replicate):
            index, count = index * mesh.size(dim) + at, count * mesh.size(dim)
            dims.append(dim)
    return Replicas(f"{dims} of {_ranks(mesh)[1]}", index, count)


def _mark(mesh: DeviceMesh, place: Place) -> str:
    ranks, digest = _ranks(mesh)
    return "" if ranks == place.world_size else f"@{digest}"


@functools.lru_cache(maxsize=64)
def _ranks(mesh: DeviceMesh) -> tuple[int, str]:
    """Return how many ranks a mesh has, and what tells it from any other arrangement of ranks."""
    arranged = repr(mesh.mesh.tolist())
    return mesh.size(), hashlib.sha256(arranged.encode()).hexdigest()[:8]
