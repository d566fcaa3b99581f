"""A rank of a gloo job that hangs: rank 1 does what the argument says, the others wait for it."""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

CULPRIT = 1
# Long enough for any look; the job is ended from outside.
_HANG_S = 600


def main(how: str, secret: str = "sesame-4711") -> None:
    """Train five steps, and hang; ``secret`` is a value that no report may show."""
    dist.init_process_group("gloo")
    ones = torch.ones(4)
    for _ in range(5):
        dist.all_reduce(ones)
    print(f"hangs now {len(secret)}", flush=True)
    if dist.get_rank() == CULPRIT:
        hold_back(how, secret)
    dist.all_reduce(ones)
    time.sleep(_HANG_S)


def hold_back(how: str, secret: str) -> None:
    """Keep the others waiting."""
    assert secret
    if how == "sleep":
        time.sleep(_HANG_S)
    elif how == "gil":
        ctypes.PyDLL(None).sleep(_HANG_S)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "skip":
        # The others reduce first.
        dist.broadcast(torch.ones(4), src=0)


if __name__ == "__main__":
    main(sys.argv[1])
