"""Unchanged script: epochs over a data loader with workers, DistributedDataParallel, checkpoints.

It imports nothing of Everstep, and begins each epoch anew after a restart.
"""

import argparse
import os
import time
from pathlib import Path

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEPS_PER_EPOCH = 25


class Batches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """This rank's part of the batches of an epoch, loaded by workers."""

    def __init__(self, seed: int, epoch: int) -> None:
        self._data, self._seed, self._first = digits.load(), seed, epoch * STEPS_PER_EPOCH
        self._rank, self._size = dist.get_rank(), dist.get_world_size()

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = self._data.batch(self._seed, self._first + index)
        own = slice(self._rank, None, self._size)
        return torch.from_numpy(images[own]), torch.from_numpy(labels[own])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-seconds-min", type=float, default=0.0)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options = parse()
    dist.init_process_group("gloo")
    torch.manual_seed(options.seed)
    network = nn.Sequential(nn.Linear(digits.PIXELS, 64), nn.GELU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    first = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        network.load_state_dict(saved["network"])
        first = saved["epoch"] + 1
    model = DistributedDataParallel(network)
    for epoch in range(first, options.steps // STEPS_PER_EPOCH):
        train_epoch(options, model, optimizer, epoch)
        if dist.get_rank() == 0:
            partial = options.checkpoint.with_suffix(f".{os.getpid()}")
            torch.save({"network": network.state_dict(), "epoch": epoch}, partial)
            partial.replace(options.checkpoint)
    dist.barrier()
    dist.destroy_process_group()


def train_epoch(
    options: argparse.Namespace,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    epoch: int,
) -> None:
    loader = DataLoader(Batches(options.seed, epoch), batch_size=None, num_workers=2)
    for index, (images, labels) in enumerate(loader):
        step = epoch * STEPS_PER_EPOCH + index
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} step {step} loss {float(total):.4f}", flush=True)
            with options.losses.open("a") as file:
                file.write(f"{step}\t{float(total).hex()}\n")
        time.sleep(options.step_seconds_min)


if __name__ == "__main__":
    main()
