"""A training script of the GPU session: in its first generation its last rank stands still once.

``hang_gpu_training.py BACKEND HOW FOLDER TIMEOUT_S``; it knows nothing of Everstep but its steps'
output. HOW is ``sleep``, ``gil``, ``stop`` or ``kill``.
"""

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

# Set by the launcher's user to nothing, so that it does not count the GPUs.
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
if int(os.environ["WORLD_SIZE"]) > 1:
    # Several ranks on one GPU: NCCL takes them for those of several nodes.
    os.environ.setdefault("NCCL_HOSTID", "node-" + os.environ["RANK"])

import torch
import torch.distributed as dist

_FAULT_AT, _STEPS, _STEPS_AGAIN = 450, 600, 40
_STEP_S = 0.03
_HANG_S = 600
_HELD_GIB = 20


def stand_still(how: str) -> None:
    """Keep the others waiting."""
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(_HANG_S)
    else:
        time.sleep(_HANG_S)


def main(backend: str, how: str, folder: Path, timeout_s: float) -> None:
    """Train, and stand still in the first generation."""
    device = "cuda" if backend == "nccl" else "cpu"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    first = os.environ["EVERSTEP_GENERATION"] == "1"
    rank, data = dist.get_rank(), torch.ones(1024, device=device)
    # Memory that has to be free before the next generation can start.
    held = torch.ones(_HELD_GIB << 28, device=device) if (device, how) == ("cuda", "kill") else None
    for step in range(_STEPS if first else _STEPS_AGAIN):
        dist.all_reduce(data)
        data.fill_(1.0)
        data[0].item()
        if rank == 0:
            print(f"step {step}", flush=True)
            (folder / f"generation-{os.environ['EVERSTEP_GENERATION']}").touch()
        if first and step == _FAULT_AT and rank == dist.get_world_size() - 1:
            (folder / "began").touch()
            stand_still(how)
        time.sleep(_STEP_S)
    del held


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
