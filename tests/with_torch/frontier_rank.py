"""A rank that makes a process group, and forks, begins anew or ends, as its argument says."""

import atexit
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

_WATCH = "everstep-frontier"


def watched() -> bool:
    """Return whether this process has the thread."""
    return any(one.name == _WATCH for one in threading.enumerate())


def train(seconds: float) -> None:
    """Reduce for so long."""
    ones, end_s = torch.ones(4), time.monotonic() + seconds
    while time.monotonic() < end_s:
        dist.all_reduce(ones)
        time.sleep(0.01)


def main(how: str) -> None:
    """Be watched, and say what the process sees of it."""
    print("before", watched())
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    print("group", watched(), flush=True)
    train(3.0)
    if how == "fork":
        child = os.fork()
        if child == 0:
            print("child", watched(), flush=True)
            # As its interpreter would; after it, gloo waits for threads that the child has not.
            atexit._run_exitfuncs()
            os._exit(0)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif how == "exec":
        os.execv(sys.executable, [sys.executable, __file__, "again"])
    elif how == "leave":
        dist.destroy_process_group()
        sys.stdin.readline()
        # The interpreter waits for this one before it calls what was registered for its end.
        threading.Thread(target=sys.stdin.readline).start()


if __name__ == "__main__":
    main(sys.argv[1])
