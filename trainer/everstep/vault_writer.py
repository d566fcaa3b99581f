"""StorageWriter of torch.distributed.checkpoint that saves into the agent's memory."""

import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from everstep.copy_engine.views import Capture, Restoration, ShardView, StateError
from everstep.state.memory.arrays import buffer_view
from everstep.state.memory.tensors import dense, format_of, tensor_view
from everstep.state.plain import nothing_of
from everstep.state.shards.parts import Part, Place, Replicas
from everstep.state.shards.regions import Region
from everstep_common.rank_messages import Entry

# Marks what is no tensor; a name of torch.distributed.checkpoint does not end so.
BYTES = "#bytes"
_STEP = re.compile(r"(\d+)\D*$")
# Its planner has seen to it already that equal tensors are saved once.
_SHARED = Replicas("", 0, 1)


class Saver(Protocol):
    """The snapshots of one state."""

    def snapshot(self, step: int, /) -> bool:
        """Save the state after ``step``; return whether it was saved."""
        ...


class SavingRun(Protocol):
    """Part of `everstep.Run` that saving uses."""

    @property
    def rank(self) -> int:
        """Return which of the job's processes this is."""
        ...

    def snapshots(self, state: Capture, /, *, raises: bool) -> Saver:
        """Return the snapshots of ``state``."""
        ...


class VaultWriter(StorageWriter):
    """Saves what a plan gives this rank as a snapshot; keep one for the whole of a run.

    The step is what `at` says, else the last number of the ``checkpoint_id`` ("step-100"). A
    step that cannot be saved, for whatever reason, is counted and logged, as with `Run.snapshots`;
    with ``raises`` it raises SnapshotError. No rank restores it: it lacks this one's part.
    """

    def __init__(self, run: SavingRun, *, raises: bool = False) -> None:
        self._items = _Items(run.rank)
        self._step: int | None = None
        self._snapshots = run.snapshots(self._items, raises=raises)

    def __reduce__(self) -> tuple[object, ...]:
        """Refuse: another process has no place in the job. Raises StateError."""
        raise StateError(
            "a VaultWriter saves from the training process only: use dcp.save, or async_save with"
            " AsyncCheckpointerType.THREAD"
        )

    def at(self, step: int) -> "VaultWriter":
        """Return this writer, for the state after ``step``."""
        self._step = step
        return self

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """See StorageWriter."""
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: object, **kwargs: object) -> None:
        """See StorageWriter. Raises StateError when no step was told."""
        if self._step is None:
            raise StateError("which step is saved? Use storage_writer=writer.at(step)")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """See StorageWriter; there is nothing to add."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """See StorageWriter; there is nothing to add."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """See StorageWriter: copy to the agent's memory and commit this rank's part."""
        written: list[ShardView] = []

        def look() -> tuple[ShardView, ...]:
            written[:] = (_item_view(item, planner.resolve_data(item)) for item in plan.items)
            return tuple(written)

        self._items.look = look
        try:
            if self._step is not None:
                self._snapshots.snapshot(self._step)
        finally:
            self._items.look = tuple
        # None of them where nothing was even looked at: the step is not wanted, or has failed.
        results = [
            WriteResult(item.index, view.size_bytes, None)
            for item, view in zip(plan.items, written, strict=False)
        ]
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See StorageWriter; every rank has committed its part already."""
        self._step = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """See StorageWriter; a vault is never found by a path."""
        return False


@dataclass(slots=True)
class _Items:
    """The Capture of what a plan gave this rank to save."""

    rank: int
    look: Callable[[], tuple[ShardView, ...]] = tuple
    needs_description: bool = True

    def views(self) -> tuple[ShardView, ...]:
        # Where ranks have equal tensors, each is one rank's, and others may have none at all.
        return self.look() or (nothing_of(self.rank),)

    def targets(self, described: tuple[Entry, ...]) -> Restoration:
        raise StateError("this state is loaded by torch.distributed.checkpoint with a VaultReader")


def _item_view(item: WriteItem, value: torch.Tensor | io.BytesIO) -> ShardView:
    name, data = item.index.fqn, item.tensor_data
    if isinstance(value, io.BytesIO):
        return buffer_view(name + BYTES, bytearray(value.getvalue()))
    if data is None:
        raise StateError(f"the plan does not say what part of tensor {name!r} to save")
    local = dense(name, value)
    region = Region(tuple(data.chunk.offsets), tuple(data.chunk.sizes))
    if region.count != local.numel():
        raise StateError(f"tensor {name!r} has other memory than the plan says")
    part = Part(
        name, local, format_of(local), region, tuple(data.size), local.element_size(), _SHARED
    )
    return part.named(tensor_view(name, local), Place())


def _step_of(checkpoint_id: str | os.PathLike[str]) -> int | None:
    found = _STEP.search(os.path.basename(os.fspath(checkpoint_id).rstrip("/")))
    return int(found[1]) if found else None
