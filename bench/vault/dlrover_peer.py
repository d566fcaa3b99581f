"""DLRover's flash checkpoint for benchmarks; runs in the peers' environment only."""

import logging
import multiprocessing
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

# Shared memory of local rank 0, which DLRover's saver leaves behind when it is killed.
_SHARED = Path("/dev/shm/ckpt_shm_0")


class DlroverSaver:
    """DLRover's checkpointer for DDP, of which a process has one."""

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        from dlrover.trainer.torch.flash_checkpoint import ddp  # type: ignore[import-not-found]

        logging.disable(logging.INFO)
        self._state = dict(state)
        self._folder = tempfile.TemporaryDirectory(prefix="everstep-bench-")
        self._kinds = ddp.StorageType
        self._checkpointer = ddp.DdpCheckpointer(self._folder.name)

    def save(self, step: int) -> bool:
        """Save into memory; return whether the step was saved."""
        engine = self._checkpointer._engine
        self._checkpointer.save_checkpoint(step, self._state, storage_type=self._kinds.MEMORY)
        return bool(engine._cached_step == step)


class Dlrover:
    """DLRover's contender: flash checkpoint into memory, its saver in a process of its own."""

    def __init__(self, saver: DlroverSaver, threads: int) -> None:
        self._saver = saver
        self._threads = threads

    def save(self, step: int) -> bool:
        """See Contender."""
        return self._saver.save(step)

    def prepare(self) -> None:
        """See Contender."""
        torch.set_num_threads(self._threads)

    def settle(self) -> None:
        """See Contender."""


def end_dlrover() -> None:
    """End its saver, a child that outlives whoever merely returns, and what that leaves behind."""
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
    _SHARED.unlink(missing_ok=True)
