"""Contenders of the stall benchmark: ways to save a rank's state, each timed by the same clock."""

import mmap
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import addressof, c_ubyte, memmove
from typing import Protocol

import torch
from harness.waits import until_idle, until_quiet
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult

import everstep

State = Mapping[str, torch.Tensor]


class Contender(Protocol):
    """One way to save the state."""

    def save(self, step: int) -> bool:
        """Do what is timed; return whether the step was saved."""
        ...

    def prepare(self) -> None:
        """Do what is not timed, before."""
        ...

    def settle(self) -> None:
        """Wait until what goes on in the background has ended."""
        ...


def timed(contender: Contender, step: int) -> float:
    """Return how long the call took. Raises SystemExit when it saved nothing."""
    contender.prepare()
    until_idle()
    began = time.perf_counter()
    saved = contender.save(step)
    took_s = time.perf_counter() - began
    if not saved:
        raise SystemExit(f"{type(contender).__name__} did not save step {step}")
    contender.settle()
    return took_s


class SharedCopy:
    """The state, and shared memory to copy it to, whose pages are present."""

    def __init__(self, state: State) -> None:
        size = sum(tensor.nbytes for tensor in state.values())
        memory = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._keep = (c_ubyte * size).from_buffer(memory)
        at = addressof(self._keep)
        self.moves: list[tuple[int, int, int]] = []
        for tensor in state.values():
            self.moves.append((at, tensor.data_ptr(), tensor.nbytes))
            at += tensor.nbytes


class Memcpy:
    """The limit: each tensor with memcpy, in so many threads without the GIL."""

    def __init__(self, copy: SharedCopy, threads: int) -> None:
        self._copy = copy
        self._pool = ThreadPoolExecutor(threads)

    def save(self, step: int) -> bool:
        """See Contender."""
        for _ in self._pool.map(lambda move: memmove(*move), self._copy.moves):
            pass
        return True

    def prepare(self) -> None:
        """See Contender."""

    def settle(self) -> None:
        """See Contender."""


class Everstep:
    """Everstep's contender: snapshot() of the SDK with an agent in another process."""

    def __init__(self, state: State) -> None:
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        self._snapshots = everstep.init().snapshots(arrays)
        self._agent = int(os.environ["EVERSTEP_BENCH_AGENT"])

    def save(self, step: int) -> bool:
        """See Contender."""
        return self._snapshots.snapshot(step)

    def prepare(self) -> None:
        """See Contender."""

    def settle(self) -> None:
        """See Contender."""
        until_quiet(self._agent)


class Discard(StorageWriter):
    """Storage writer that writes nothing: what is measured is over before writing begins."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """See StorageWriter."""

    def set_up_storage_writer(self, is_coordinator: bool) -> None:
        """See StorageWriter."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """See StorageWriter."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """See StorageWriter."""
        return plans

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> "torch.futures.Future[list[WriteResult]]":
        """See StorageWriter."""
        done: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        done.set_result([])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See StorageWriter."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """See StorageWriter."""
        return True


class Dcp:
    """PyTorch's contender: torch.distributed.checkpoint.async_save with its default stager."""

    def __init__(self, state: State) -> None:
        self._state = dict(state)
        self._writing: Future[object] | None = None

    def save(self, step: int) -> bool:
        """See Contender."""
        self._writing = async_save(self._state, storage_writer=Discard())  # type: ignore[assignment]
        return True

    def prepare(self) -> None:
        """See Contender."""
        torch.set_num_threads(2)

    def settle(self) -> None:
        """See Contender."""
        assert self._writing is not None
        self._writing.result()
