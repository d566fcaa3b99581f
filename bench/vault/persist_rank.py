"""Rank of a vault benchmark: saves at every step under `everstep run`, or by DLRover.

Arguments: everstep or dlrover, bytes, steps, seconds of a step, folder. Writes result.json there.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from vault.dlrover_peer import end_dlrover

import everstep

_TENSORS = 64
_PATIENCE_S = 120.0
_TRACKER = "dlrover_latest.txt"


@dataclass(slots=True)
class Result:
    """Steps that were made and skipped, and how long each stalled training."""

    steps: int = 0
    skipped: int = 0
    stalls_s: list[float] = field(default_factory=list)

    def take(self, save: Callable[[], bool]) -> None:
        """Save one step."""
        began = time.perf_counter()
        saved = save()
        self.stalls_s.append(time.perf_counter() - began)
        self.steps += 1
        self.skipped += not saved


State = dict[str, torch.Tensor]


def with_everstep(state: State, steps: int, step_s: float) -> Result:
    """Save every step; how often one is persisted is in the launcher's command line."""
    run = everstep.init()
    snapshots = run.snapshots({name: tensor.numpy() for name, tensor in state.items()})
    snapshots.restore()
    result = Result()
    for step in range(steps):
        time.sleep(step_s)
        result.take(lambda step=step: snapshots.snapshot(step))  # type: ignore[misc]
        run.step(step)
    return result


def with_dlrover(state: State, step_s: float, folder: Path) -> Result:
    """Save every step into memory while the first is being persisted."""
    # In the peers' environment only.
    from dlrover.trainer.torch.flash_checkpoint import ddp  # type: ignore[import-not-found]

    logging.disable(logging.INFO)
    kinds = ddp.StorageType
    checkpointer = ddp.DdpCheckpointer(str(folder))
    checkpointer.save_checkpoint(1, state, storage_type=kinds.MEMORY)
    checkpointer.save_checkpoint(2, state, storage_type=kinds.DISK)
    result = Result()
    deadline = time.monotonic() + _PATIENCE_S
    while not (folder / _TRACKER).exists() and time.monotonic() < deadline:
        step = result.steps + 3
        time.sleep(step_s)
        result.take(lambda step=step: _in_memory(checkpointer, step, state, kinds.MEMORY))  # type: ignore[misc]
    return result


def _in_memory(checkpointer: object, step: int, state: State, kind: object) -> bool:
    checkpointer.save_checkpoint(step, state, storage_type=kind)  # type: ignore[attr-defined]
    return bool(checkpointer._engine._cached_step == step)  # type: ignore[attr-defined]


def main(manner: str, size_bytes: int, steps: int, step_s: float, folder: Path) -> None:
    """Run and write the result."""
    each = size_bytes // _TENSORS // 4
    state = {f"layer-{number}": torch.rand(each) for number in range(_TENSORS)}
    if manner == "everstep":
        result = with_everstep(state, steps, step_s)
    else:
        result = with_dlrover(state, step_s, folder)
    (folder / "result.json").write_text(json.dumps(asdict(result)))
    end_dlrover()
    if manner == "dlrover":
        os._exit(0)  # its threads would keep the process


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
