"""Unchanged script: DistributedDataParallel over gloo on handwritten digits, with checkpoints.

It imports nothing of Everstep. How it tells its steps, and what it does between them, are options.
"""

import time
from functools import partial
from pathlib import Path

import between_steps
import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def load(path: Path, network: nn.Module) -> int:
    """Fill the weights from a checkpoint; return the step that comes next."""
    if not path.exists():
        return 0
    saved = torch.load(path)
    network.load_state_dict(saved["network"])
    return int(saved["step"]) + 1


def main() -> None:
    options = between_steps.parser().parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    network = nn.Sequential(nn.Linear(digits.PIXELS, 64), nn.GELU(), nn.Linear(64, digits.CLASSES))
    first = load(options.checkpoint, network)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = digits.load()
    for step in between_steps.steps_told(options, first, rank):
        due = time.monotonic() + options.step_seconds_min
        images, labels = map(torch.from_numpy, data.batch(options.seed, step))
        between_steps.await_data(options, step)
        optimizer.zero_grad()
        loss = cross_entropy(model(images[rank::size]), labels[rank::size])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if rank == 0:
            state = {"network": network.state_dict(), "step": step}
            between_steps.finish(options, step, float(total) / size, partial(torch.save, state))
        time.sleep(max(0.0, due - time.monotonic()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
