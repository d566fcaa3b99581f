"""What the examples of docs/training.md take for granted; its text stands before each of them."""

import os

import torch
import torch.distributed as dist
from torch import nn

steps = 6
torch.set_num_threads(1)
torch.manual_seed(1)
model: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
loss_of = nn.functional.mse_loss
if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def global_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the batch of a step, for all ranks together."""
    inputs = torch.randn(96, 4, generator=torch.Generator().manual_seed(step))
    return inputs, inputs.sum(1, keepdim=True)


def train(step: int) -> float:
    """Train a step on the global batch, on every rank."""
    inputs, targets = global_batch(step)
    optimizer.zero_grad()
    loss = loss_of(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())
