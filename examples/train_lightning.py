"""Trains on handwritten digits by a Lightning Trainer, and survives every failure.

On each node:  everstep run --job digits --nnodes 2 --nproc-per-node 2 train_lightning.py
On its own:    python train_lightning.py

Lightning averages gradients by DistributedDataParallel; on another number of ranks the global
batch stays the same.
"""

import os
from collections.abc import Iterator

import digits
import torch
from lightning.pytorch import (  # pyright: ignore[reportMissingImports]
    LightningModule,
    Trainer,
    seed_everything,
)
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, IterableDataset

import everstep
from everstep.integrations.lightning import LightningCallback

OPTIONS = digits.options(__doc__)
RUN = everstep.init()
SHARE = RUN.share(digits.GLOBAL_BATCH, digits.MICRO_BATCH)
STEPS_PER_EPOCH = 25
# Images, labels, and what their mean loss counts.
Batch = tuple[torch.Tensor, torch.Tensor, float]


class Network(LightningModule):  # type: ignore[misc]  # its types are left out
    """Two layers, trained with a learning rate that falls after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10)
        )
        self.losses: list[torch.Tensor] = []

    def on_fit_start(self) -> None:
        """Let each rank drop other pixels; what is restored is drawn on from all the same."""
        torch.manual_seed(OPTIONS.seed + RUN.rank)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Return the loss of a micro-batch; Lightning divides it by their number."""
        images, labels, weight = batch
        loss = cross_entropy(self.layers(images), labels) * weight
        self.losses.append(loss.detach())
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Tell the loss of the step, over all ranks."""
        loss = self.trainer.strategy.reduce(torch.stack(self.losses).mean(), reduce_op="mean")
        self.losses.clear()
        if RUN.rank == 0:
            digits.tell(self.global_step, float(loss), OPTIONS)

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[ExponentialLR]]:
        """Return the optimizer and its schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.003)
        return [optimizer], [ExponentialLR(optimizer, 0.9)]


class Batches(IterableDataset[Batch]):
    """This rank's micro-batches of an epoch, from the step that comes next."""

    def __init__(self, callback: LightningCallback) -> None:
        self._callback = callback

    def __len__(self) -> int:
        return STEPS_PER_EPOCH * len(SHARE.micro_batches)

    def __iter__(self) -> Iterator[Batch]:
        data, first = digits.load(), self._callback.next_step
        for step in range(first, first - first % STEPS_PER_EPOCH + STEPS_PER_EPOCH):
            images, labels = map(torch.from_numpy, data.batch(OPTIONS.seed, step))
            for part in SHARE.micro_batches:
                own = slice(part.samples.start, part.samples.stop)
                yield images[own], labels[own], part.weight * len(SHARE.micro_batches)


def main() -> None:
    seed_everything(OPTIONS.seed)
    callback = LightningCallback(RUN)
    trainer = Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        accumulate_grad_batches=len(SHARE.micro_batches),
        max_steps=OPTIONS.steps,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # Of its own: a loader draws at the start of each epoch, and a restore may begin after that.
    generator = torch.Generator()
    trainer.fit(Network(), DataLoader(Batches(callback), batch_size=None, generator=generator))


if __name__ == "__main__":
    main()
