"""A DDP job of gloo that knows nothing of Everstep; one rank may work longer, or each now and then.

How long a rank works beside the model is told by sleeping: a processor that others use as well
would be slow for another reason.
"""

import random
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SLOW_RANK = 2
_OWN_S = 0.15


def main(how: str) -> None:
    """Train until killed: "equal", "slow" (one rank by half), "uneven" (by its data)."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    chance = random.Random(rank)
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        own_s = _OWN_S * (1.5 if how == "slow" and rank == SLOW_RANK else 1.0)
        if how == "uneven":
            own_s *= chance.uniform(0.6, 1.4)
        time.sleep(own_s)
        optimizer.zero_grad()
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
