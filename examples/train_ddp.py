"""Trains on handwritten digits by torch DistributedDataParallel, and survives every failure.

On each node:  everstep run --job digits --nnodes 2:3 --nproc-per-node 2 train_ddp.py --steps 2000
On its own:    python train_ddp.py

The losses are equal to the bit whatever was restarted in between, on any number of ranks; that
takes `rebuild_buckets`, for DDP makes its buckets anew after the first step of each process, and
three ranks or more would sum that step in another order. When the job goes on with another number
of ranks, the global batch stays the same: the losses differ by rounding only.
"""

import argparse
import contextlib
import os

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import everstep
from everstep.integrations.ddp import rebuild_buckets


def train(options: argparse.Namespace) -> None:
    run = everstep.init()
    torch.manual_seed(options.seed)
    network = nn.Sequential(
        nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Linear(128, digits.CLASSES)
    )
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    data = digits.load()
    samples, targets = map(torch.from_numpy, data.batch(options.seed, 0))
    rebuild_buckets(model, lambda: cross_entropy(model(samples), targets).backward())  # type: ignore[no-untyped-call]
    snapshots = run.snapshots({"model": model, "optimizer": optimizer})
    restored = snapshots.restore()

    share = run.share(digits.GLOBAL_BATCH, digits.MICRO_BATCH)
    for step in range(0 if restored is None else restored + 1, options.steps):
        images, labels = map(torch.from_numpy, data.batch(options.seed, step))
        optimizer.zero_grad()
        total = torch.zeros(())
        for micro_batch in share.micro_batches:
            own = slice(micro_batch.samples.start, micro_batch.samples.stop)
            last = micro_batch is share.micro_batches[-1]
            with contextlib.nullcontext() if last else model.no_sync():
                loss = cross_entropy(model(images[own]), labels[own]) * micro_batch.weight
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        optimizer.step()

        dist.all_reduce(total)
        if run.rank == 0:
            digits.tell(step, float(total) / run.world_size, options)
        snapshots.snapshot(step)
        run.step(step)


def main() -> None:
    options = digits.options(__doc__)
    torch.use_deterministic_algorithms(True)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    train(options)
    dist.barrier()  # a rank that leaves early must not look like a fault to the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
