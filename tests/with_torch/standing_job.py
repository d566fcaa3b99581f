"""A rank of a gloo job that trains, and then stands still in the way that the argument says."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CULPRIT = 1
_STEP_S = 0.05
_HANG_S = 600


def train(first: int, count: int, how: str) -> None:
    """Train some steps, and tell of them as the argument says."""
    ones = torch.ones(4)
    for step in range(first, first + count):
        dist.all_reduce(ones)
        time.sleep(_STEP_S)
        if how == "told":
            import everstep

            everstep.phase("forward")
            everstep.step(step)
        elif how == "printed" and dist.get_rank() == 0:
            print(f"step {step}", flush=True)


def evaluate(seconds: float) -> None:
    """Have all wait for one rank, in a pause."""
    import everstep

    with everstep.pause("evaluation"):
        if dist.get_rank() == CULPRIT:
            time.sleep(seconds)
        dist.barrier()


def hang(how: str, until: Path) -> None:
    """Keep the others waiting, until a file is there where that is possible."""
    if how == "gil":
        ctypes.PyDLL(None).sleep(_HANG_S)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    while not until.exists():
        time.sleep(0.05)


def main(how: str, count: int, until: Path) -> None:
    """Train, evaluate, train on, and hang."""
    dist.init_process_group("gloo")
    train(0, count, how)
    if how == "told":
        evaluate(8.0)
        train(count, 20, how)
    if dist.get_rank() == CULPRIT:
        hang(how, until)
    train(2 * count, 10_000, how)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
