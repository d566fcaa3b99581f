"""The training script of the whole-job tests: a small transformer under DDP, FSDP2 or DCP."""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import everstep
from everstep.checkpoint import VaultReader, VaultWriter
from everstep.integrations.ddp import rebuild_buckets

# A batch that 3, 4 and 5 ranks share evenly.
VOCABULARY, WIDTH, LENGTH, BATCH = 32, 32, 8, 60


class Transformer(nn.Module):
    """Two layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=dropout, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        out: torch.Tensor = self.head(hidden)
        return out


class Training:
    """One rank's model and optimizer."""

    def __init__(self, kind: str, dropout: float) -> None:
        torch.manual_seed(7)
        self.model: nn.Module = Transformer(dropout)
        if kind == "ddp":
            self.model = wrapped = DistributedDataParallel(self.model)
            tokens = torch.zeros(1, LENGTH, dtype=torch.int64)
            rebuild_buckets(wrapped, lambda: wrapped(tokens).sum().backward())
        else:
            for layer in self.model.layers:
                fully_shard(layer)
            fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)

    def step(self, step: int) -> float:
        """Return the loss over all ranks; the batch is a function of the step alone."""
        source = torch.Generator().manual_seed(1000 + step)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=source)
        own = tokens[dist.get_rank() :: dist.get_world_size()]
        self.optimizer.zero_grad()
        scores = self.model(own)
        loss = nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), own.reshape(-1))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.scheduler.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()


class Snapshotted(Training):
    """Saved by `run.snapshots`."""

    def __init__(self, kind: str, run: everstep.Run, dropout: float = 0.2) -> None:
        super().__init__(kind, dropout)
        torch.manual_seed(100 + dist.get_rank())
        state = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self._snapshots = run.snapshots(state)

    def restore(self) -> int | None:
        return self._snapshots.restore()

    def save(self, step: int) -> bool:
        return self._snapshots.snapshot(step)


class Checkpointed(Training):
    """Saved by torch.distributed.checkpoint over the vault."""

    def __init__(self, kind: str, run: everstep.Run) -> None:
        super().__init__(kind, 0.2)
        self._run = run
        self._writer = VaultWriter(run)

    def step(self, step: int) -> float:
        torch.manual_seed(step * 1000 + dist.get_rank())
        return super().step(step)

    def restore(self) -> int | None:
        step = self._run.restore_step
        if step is not None:
            state = self._state()
            load(state, storage_reader=VaultReader(self._run))
            set_state_dict(
                self.model,
                self.optimizer,
                model_state_dict=state["model"],  # type: ignore[arg-type]
                optim_state_dict=state["optimizer"],  # type: ignore[arg-type]
            )
        return step

    def save(self, step: int) -> bool:
        save(self._state(), storage_writer=self._writer.at(step))
        return True

    def _state(self) -> dict[str, object]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler}


class Kept(Protocol):
    """A training that is saved."""

    def restore(self) -> int | None: ...
    def step(self, step: int) -> float: ...
    def save(self, step: int) -> bool: ...


KINDS: dict[str, Callable[[everstep.Run], Kept]] = {
    "ddp": lambda run: Snapshotted("ddp", run),
    "fsdp": lambda run: Snapshotted("fsdp", run),
    # Without dropout the losses hardly depend on the number of ranks.
    "fsdp-steady": lambda run: Snapshotted("fsdp", run, 0.0),
    "ddp-steady": lambda run: Snapshotted("ddp", run, 0.0),
    "dcp": lambda run: Checkpointed("fsdp", run),
}


def main(kinds: Mapping[str, Callable[[everstep.Run], Kept]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=kinds, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--step-seconds-min", type=float, default=0.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    run = everstep.init()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    train(kinds[options.kind](run), run, options.steps, options.losses, options.step_seconds_min)
    dist.barrier()
    # A process that leaves early must not be seen as a fault by the others.
    dist.destroy_process_group()
    sys.stdout.flush()


def train(training: Kept, run: everstep.Run, steps: int, to: Path, step_s: float) -> None:
    last = training.restore()
    with to.open("a", encoding="ascii") as losses:
        for step in range(0 if last is None else last + 1, steps):
            loss = training.step(step)
            if dist.get_rank() == 0:
                losses.write(f"{step}\t{loss.hex()}\n")
                losses.flush()
            training.save(step)
            run.step(step)
            time.sleep(step_s)


def train_alone(kind: str, steps: int, to: Path) -> None:
    """Train without Everstep, in a world that is there already."""
    place = {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    warnings.simplefilter("ignore")
    run = everstep.init(place)
    train(KINDS[kind](run), run, steps, to, 0.0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(KINDS)
