"""A training script that knows nothing of Everstep: each step reads its samples from a file."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BYTES_A_READ, PART_BYTES = 1 << 12, 1 << 18

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with open(sys.argv[1], "rb", buffering=0) as samples:
    for step in range(int(sys.argv[2])):
        # Each rank its own part of the file, and no part twice.
        part = step * dist.get_world_size() + dist.get_rank()
        read = os.pread(samples.fileno(), BYTES_A_READ, part * PART_BYTES)
        loss = model(torch.ones(4, 16) * (1 + read[0])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if os.environ["RANK"] == "0":
            print(f"step {step} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
