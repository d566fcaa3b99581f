"""A rank that hangs on a GPU: ``hang_gpu_rank.py FOLDER BACKEND HOW TIMEOUT_S``.

It trains small steps and does what the files in its folder say: what ``fault-N.json`` names, at the
next step of the rank that it names. HOW is ``train``, ``graph`` (its steps are in a CUDA graph) or
``hold`` (it takes device memory and waits).
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

# Set by the launcher to nothing, so that it does not count the GPUs.
os.environ["CUDA_VISIBLE_DEVICES"] = "0"

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

_STEP_S = 0.02
# Cycles of the GPU's clock in a second, at most: a spin takes no shorter than it is told to.
_CYCLES_PER_S = 2_000_000_000
_HELD_GIB = 20


class Rank:
    """What one rank does."""

    def __init__(self, folder: Path, backend: str) -> None:
        self._folder = folder
        self._gpu = backend == "nccl"
        self._number = dist.get_rank()
        self._data = torch.ones(1024, device="cuda" if self._gpu else "cpu")
        self._next_fault = 0
        self._step = 0

    def train(self) -> None:
        """Train until somebody ends it."""
        while True:
            kind, seconds = self._fault()
            if kind == "skip":
                dist.broadcast(self._data, src=0)
            elif kind == "recv":
                dist.recv(self._data, src=(self._number + 1) % dist.get_world_size())
            elif kind:
                _FAULTS[kind](seconds)
            self._tell()
            dist.all_reduce(self._data)
            self._data.fill_(1.0)
            self._data[0].item()
            time.sleep(_STEP_S)

    def train_by_graph(self) -> None:
        """Train with the collective in a CUDA graph, of which no recorder knows."""
        for _ in range(20):
            dist.all_reduce(self._data)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(self._data)
        (self._folder / f"graph-{self._number}").touch()
        while True:
            graph.replay()
            torch.cuda.synchronize()
            self._tell()
            time.sleep(_STEP_S)

    def _fault(self) -> tuple[str, float]:
        path = self._folder / f"fault-{self._next_fault}.json"
        if not path.exists():
            return "", 0.0
        self._next_fault += 1
        told = json.loads(path.read_text())
        if told["rank"] != self._number:
            return "", 0.0
        (self._folder / f"began-{self._next_fault - 1}").touch()
        return str(told["kind"]), float(told["seconds"])

    def _tell(self) -> None:
        self._step += 1
        _write(self._folder / f"step-{self._number}", str(self._step))


def _spin(seconds: float) -> None:
    """Keep the stream busy: what is enqueued after it waits."""
    torch.cuda._sleep(int(seconds * _CYCLES_PER_S))  # type: ignore[no-untyped-call]


def _hold_gil(seconds: float) -> None:
    ctypes.PyDLL(None).sleep(int(seconds))


_FAULTS: dict[str, Callable[[float], object]] = {
    "sleep": time.sleep,
    "gil": _hold_gil,
    "gpu": _spin,
}


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    draft.rename(path)


def _info(backend: str) -> dict[str, object]:
    names = getattr(_distributed_c10d, "_get_handler_names", None)
    nccl = torch.cuda.nccl.version() if backend == "nccl" else ()  # type: ignore[no-untyped-call]
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl)),
        "worker_server": hasattr(_distributed_c10d, "_WorkerServer"),
        "handlers": sorted(names()) if names else [],
        "dumps": sorted(name for name in dir(_distributed_c10d) if name.startswith("_dump_")),
    }


def _hold(folder: Path) -> None:
    """Take device memory, and wait."""
    kept = torch.ones(_HELD_GIB << 28, device="cuda")
    torch.cuda.synchronize()
    _write(folder / "step-0", str(kept.numel()))
    time.sleep(600)


def main(folder: Path, backend: str, how: str, timeout_s: float) -> None:
    """Do what is asked for."""
    if backend == "nccl":
        torch.cuda.set_device(0)
    if how == "hold":
        _hold(folder)
        return
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    rank = Rank(folder, backend)
    _write(folder / f"info-{dist.get_rank()}.json", json.dumps(_info(backend)))
    if how == "graph":
        rank.train_by_graph()
    rank.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
