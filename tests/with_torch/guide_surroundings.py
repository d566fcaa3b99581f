"""What the examples of docs/snapshots.md take for granted: a model, arrays, and a training step.

Its text stands before each example's, so that the step trains what the example has wrapped.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

steps = int(os.environ["GUIDE_STEPS"])
folder = os.environ["GUIDE_FOLDER"]

torch.set_num_threads(1)
torch.manual_seed(1)
model: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
weights, momentum, counts = np.zeros(1000), np.zeros(1000), np.zeros(3)
if "RANK" in os.environ:
    dist.init_process_group("gloo")


def wait_for_storage(latest: Path) -> None:
    """Return when there is a step that another job can go on from."""
    end = time.monotonic() + 60
    while not latest.exists() or not json.loads(latest.read_text())["target"]:
        assert time.monotonic() < end
        time.sleep(0.05)


def train(step: int) -> None:
    """Train a step, and write down how often what was trained has been updated."""
    global counts
    weights[:] += 1
    momentum[:] += 1
    counts = counts + 1
    optimizer.zero_grad()
    batch = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
    model(batch).square().mean().backward()
    optimizer.step()
    if step == steps - 1 and folder:
        wait_for_storage(Path(folder) / "latest")
    updates = next(iter(optimizer.state.values()))["step"]
    told = (float(updates), min(*weights, *momentum), min(counts))
    if dist.get_rank() == 0:
        with open(sys.argv[-1], "a", encoding="ascii") as file:
            file.write("\t".join(map(str, (step, *told))) + "\n")
