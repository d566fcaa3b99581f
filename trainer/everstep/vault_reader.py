"""StorageReader of torch.distributed.checkpoint over the step that the recovery plan restores."""

import ctypes
import io
import os
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from everstep.copy_engine.views import Copies, DescribedState, Found, Restoration, RestoreError
from everstep.state.memory.tensors import as_memory, dtype_of
from everstep.state.plain import is_nothing
from everstep.state.shards.regions import Region, whole
from everstep.vault_writer import BYTES
from everstep_common.rank_messages import Entry


class Shards(Protocol):
    """Reader of single shards of the plan's step."""

    def everyones(self) -> DescribedState | None:
        """Return the shards of all ranks; None: there is no step."""
        ...

    def bring(self, restoration: Restoration, /) -> int | None:
        """Have it filled; return the step, None: there is none."""
        ...


class ReadingRun(Protocol):
    """Part of `everstep.Run` that reading uses."""

    def restorer(self) -> Shards | None:
        """Return what reads the step; None: this process is in no job."""
        ...


class VaultReader(StorageReader):
    """Reader of the step that the recovery plan restores, on any number of ranks."""

    def __init__(self, run: ReadingRun) -> None:
        self._run = run
        self._entries: dict[tuple[str, tuple[int, ...]], Entry] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """See StorageReader; the recovery plan names the step."""
        self._entries = {}

    def read_metadata(self, *args: object, **kwargs: object) -> Metadata:
        """See StorageReader. Raises RestoreError when there is no step to restore."""
        restorer = self._run.restorer()
        described = restorer.everyones() if restorer else None
        if described is None:
            raise RestoreError("there is no step to restore: see run.restore_step")
        metadata = Metadata(state_dict_metadata={})
        for entry in described.entries:
            if not is_nothing(entry.name):
                self._add(entry, metadata)
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: object, **kwargs: object
    ) -> None:
        """See StorageReader; what is needed is known from the descriptions."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """See StorageReader; there is nothing to add."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """See StorageReader; there is nothing to add."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """See StorageReader: have the shards verified, then copy from them. Raises RestoreError."""
        reads = tuple((item, self._entry_of(item)) for item in plan.items)
        restorer = self._run.restorer()
        if reads and (restorer is None or restorer.bring(_Reading(reads, planner)) is None):
            raise RestoreError("the agent has no step to restore any more")
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """See StorageReader; a vault is never found by a path."""
        return False

    def _add(self, entry: Entry, metadata: Metadata) -> None:
        name = entry.tensor or entry.name
        if name.endswith(BYTES):
            name = name.removesuffix(BYTES)
            metadata.state_dict_metadata[name] = BytesStorageMetadata()
            self._entries[name, ()] = entry
            return
        dtype = dtype_of(entry.format)
        if dtype is None:
            raise RestoreError(f"tensor {name!r} is of format {entry.format!r}, unknown here")
        region = Region(entry.begins, entry.shape) if entry.tensor else whole(entry.shape)
        size = torch.Size(entry.whole if entry.tensor else entry.shape)
        known = metadata.state_dict_metadata.setdefault(
            name, TensorStorageMetadata(TensorProperties(dtype), size, [])
        )
        if isinstance(known, TensorStorageMetadata):
            known.chunks.append(
                ChunkStorageMetadata(torch.Size(region.begins), torch.Size(region.shape))
            )
        self._entries[name, region.begins] = entry

    def _entry_of(self, item: ReadItem) -> Entry:
        index = item.storage_index
        entry = self._entries.get((index.fqn, tuple(index.offset or ())))
        if entry is None and index.offset is None:  # a whole tensor that was read without an offset
            entry = next((one for (n, _), one in self._entries.items() if n == index.fqn), None)
        if entry is None:
            raise RestoreError(f"no copy holds {index.fqn!r} at {index.offset}")
        return entry


@dataclass(frozen=True, slots=True)
class _Reading:
    """The Restoration of what a plan wants."""

    reads: tuple[tuple[ReadItem, Entry], ...]
    planner: LoadPlanner

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.name for _, entry in self.reads))

    def fill(self, found: Found, copier: Copies) -> None:
        for _, told in self.reads:
            entry = found[told.name][0] if told.name in found else None
            if entry is None or (entry.size_bytes, entry.shape) != (told.size_bytes, told.shape):
                raise RestoreError(f"no copy holds shard {told.name!r} as it was described")
        for item, told in self.reads:
            self._read(item, told, found[told.name][1])

    def finish(self) -> None:
        """There is nothing more to do."""

    def _read(self, item: ReadItem, entry: Entry, address: int) -> None:
        if item.type is LoadItemType.BYTE_IO:
            content = ctypes.string_at(address, entry.size_bytes)
            self.planner.load_bytes(item, io.BytesIO(content))
            return
        target = self.planner.resolve_tensor(item).detach()
        source = _tensor_at(entry, address)
        for dim, (begin, extent) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            source = source.narrow(dim, begin, extent)
        target.copy_(source)
        self.planner.commit_tensor(item, target)


def _tensor_at(entry: Entry, address: int) -> torch.Tensor:
    dtype = dtype_of(entry.format)
    if dtype is None:
        raise RestoreError(f"shard {entry.name!r} is of format {entry.format!r}, unknown here")
    if entry.size_bytes == 0:
        return torch.empty(entry.shape, dtype=dtype)
    flat = as_memory(address, entry.size_bytes, 1).reshape(-1)
    return flat.view(dtype).view(entry.shape)
