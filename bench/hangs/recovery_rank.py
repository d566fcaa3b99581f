"""Training script of the hang recovery benchmark: gloo, its own checkpoint, one hang in rank 1.

    hang_recovery_rank.py FOLDER HOW WARM_S STEP_S CALLS TIMEOUT_S EVALUATES_S

After a third of WARM_S seconds of training, and after two, rank 0 evaluates for EVALUATES_S, of
which it says nothing; 0: never. After WARM_S HOW happens, once in the life of FOLDER, but that of a
wrong shape in the same step each time: gloo aborts such a rank, and a first abort is started again.
"node" is left to who started it, who finds the process of the last rank in FOLDER/warm. A step
takes STEP_S and has CALLS reductions and a broadcast; TIMEOUT_S is that of the process group, 0 as
shipped. Times are of the wall clock.
"""

import ctypes
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_FAULTY = 1
_FOR_EVER_S = 600
_SIGNALS = {"stop": signal.SIGSTOP, "dead": signal.SIGKILL}
# What comes out by itself takes so long.
_PAUSE_S = 20.0


class Training:
    """Time that a job has trained, and the evaluations in it."""

    def __init__(self, warm_s: float, evaluates_s: float, first: bool) -> None:
        self._began_s = time.monotonic()
        self._warm_s = warm_s
        self._evaluates_s = evaluates_s
        self._due_s = [warm_s / 3, 2 * warm_s / 3] if first and evaluates_s else []

    @property
    def warm(self) -> bool:
        """Whether it is time for what happens."""
        return not self._due_s and time.monotonic() - self._began_s > self._warm_s

    def maybe_evaluate(self) -> None:
        """Evaluate on rank 0 when it is time, while the others wait in their next step."""
        if self._due_s and time.monotonic() - self._began_s > self._due_s[0]:
            del self._due_s[0]
            self._began_s += self._evaluates_s  # what it takes is no training
            if dist.get_rank() == 0:
                _evaluate(time.monotonic() + self._evaluates_s)


def main(folder: Path, how: str, training: Training, step_s: float, calls: int) -> None:
    """Train until somebody ends it."""
    rank = dist.get_rank()
    checkpoint = folder / "checkpoint"
    first = int(checkpoint.read_text()) + 1 if checkpoint.exists() else 1
    ones = torch.ones(4)
    dist.barrier()
    for step in range(first, 1_000_000):
        training.maybe_evaluate()
        for call in range(calls):
            time.sleep(step_s / calls)
            late = training.warm and call == calls // 2
            if late and how == "node":
                _tell_last(folder)
            elif rank == _FAULTY and call == calls // 2 and _comes(how, folder, step, late=late):
                _hang(how, folder)
                if how == "skip":
                    continue
            dist.all_reduce(ones)
        dist.broadcast(ones, src=0)
        if rank == 0:
            draft = checkpoint.with_suffix(".new")
            draft.write_text(str(step))
            draft.rename(checkpoint)
            with (folder / "steps").open("a") as file:
                file.write(f"{step} {time.time_ns()}\n")
            print(f"step {step} loss 1.0", flush=True)


def _comes(how: str, folder: Path, step: int, *, late: bool) -> bool:
    """Return whether it happens now, and write down when it first did."""
    if (folder / "fault").exists():
        return how == "shape" and step == int((folder / "step").read_text())
    if late:
        (folder / "step").write_text(str(step))
        (folder / "fault").write_text(str(time.time_ns()))
    return late


def _tell_last(folder: Path) -> None:
    """Tell which process the last rank is."""
    if dist.get_rank() == dist.get_world_size() - 1 and not (folder / "warm").exists():
        draft = folder / "warm.new"
        draft.write_text(str(os.getpid()))
        draft.rename(folder / "warm")


def _hang(how: str, folder: Path) -> None:
    if how == "gil":
        ctypes.PyDLL(None).sleep(_FOR_EVER_S)
    elif how in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[how])
    elif how == "desync":
        dist.broadcast(torch.ones(4), src=0)
    elif how == "shape":
        dist.all_reduce(torch.ones(64))
    elif how == "evaluation":
        _evaluate(time.monotonic() + _PAUSE_S)
    elif how == "loader":
        _load_batch()
    elif how == "save":
        _save(folder / "saved", time.monotonic() + _PAUSE_S)


def _evaluate(ends_s: float) -> None:
    weights = torch.ones(64, 64)
    while time.monotonic() < ends_s:
        (weights @ weights).sum().item()
        time.sleep(0.01)


def _load_batch() -> None:
    """Read from a pipe that delivers nothing for a while."""
    read, write = os.pipe()
    if os.fork() == 0:
        time.sleep(_PAUSE_S)
        os.write(write, b"batch")
        os._exit(0)
    os.read(read, 5)


def _save(path: Path, ends_s: float) -> None:
    with path.open("wb") as file:
        while time.monotonic() < ends_s:
            file.seek(0)
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


if __name__ == "__main__":
    torch.set_num_threads(1)
    timeout_s = float(sys.argv[6])
    limit = timedelta(seconds=timeout_s) if timeout_s else None
    dist.init_process_group("gloo", timeout=limit)
    warm_s, step_s, evaluates_s = (float(sys.argv[place]) for place in (3, 4, 7))
    place = Path(sys.argv[1])
    trains = Training(warm_s, evaluates_s, not (place / "fault").exists())
    main(place, sys.argv[2], trains, step_s, int(sys.argv[5]))
