"""Early copies: shards that may change before the optimizer's step are copied at the boundary.

A forward pass changes the buffers of a model (BatchNorm's running means); of what is
neither model nor optimizer (a data loader, a dictionary) nobody knows. All else stays until the
update.
"""

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from everstep.copy_engine.device_copies import Device
from everstep.copy_engine.views import ShardView
from everstep.state.capture import is_stateful
from everstep.state.objects.containers import is_container
from everstep_common.shard_names import owner


class _Tensor(Protocol):
    def data_ptr(self) -> int: ...


@runtime_checkable
class _Module(Protocol):
    """A torch.nn.Module, as far as it matters here."""

    def named_buffers(self) -> Iterable[tuple[str, _Tensor]]:
        """Return the tensors that are no parameters."""
        ...


class Early:
    """Finder of the shards that may change before the optimizer's step."""

    def __init__(self, state: Mapping[str, object]) -> None:
        self._modules = [part for part in state.values() if isinstance(part, _Module)]
        self._unknown = tuple(
            f"{name}/"
            for name, part in state.items()
            if is_container(part) or (is_stateful(part) and not _waits(part))
        )

    def detach(self, shards: tuple[ShardView, ...], device: Device | None) -> tuple[ShardView, ...]:
        """Return the shards, with own memory for those that will not wait."""
        buffers = {one.data_ptr() for module in self._modules for _, one in module.named_buffers()}
        return tuple(
            _detached(shard, device)
            if shard.size_bytes and (shard.address in buffers or self._is_unknown(shard))
            else shard
            for shard in shards
        )

    def _is_unknown(self, shard: ShardView) -> bool:
        return bool(self._unknown) and owner(shard.name)[1].startswith(self._unknown)


def _waits(part: object) -> bool:
    """Return whether a part of the state stays as it is until the optimizer's step."""
    return isinstance(part, _Module) or hasattr(part, "register_step_pre_hook")


def _detached(shard: ShardView, device: Device | None) -> ShardView:
    if shard.cuda is not None and device is not None:
        clone = device.clone(shard.cuda)
        return replace(shard, cuda=clone, keep=clone)
    memory = (ctypes.c_ubyte * shard.size_bytes)()
    ctypes.memmove(memory, shard.address, shard.size_bytes)
    return replace(shard, address=ctypes.addressof(memory), keep=memory)
