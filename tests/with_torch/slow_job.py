"""A rank of a gloo job that tells when it waits for others; one of them may work longer."""

import sys
import time

import torch
import torch.distributed as dist

import everstep

SLOW_RANK = 2
_OWN_S = 0.2


def main(factor: float) -> None:
    """Train until killed; the slow rank works ``factor`` times as long as the others."""
    dist.init_process_group("gloo")
    own_s = _OWN_S * (factor if dist.get_rank() == SLOW_RANK else 1.0)
    total = torch.ones(4)
    for step in range(1_000_000):
        time.sleep(own_s)  # a processor that others use as well would be slow for another reason
        with everstep.waiting():
            dist.all_reduce(total)
        everstep.step(step)


if __name__ == "__main__":
    main(float(sys.argv[1]))
