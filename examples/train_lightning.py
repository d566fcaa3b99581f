"""Trains on handwritten digits by a Lightning Trainer, and survives every failure.

In a job:    everstep run --job digits --nproc-per-node 1 train_lightning.py --steps 2000
On its own:  python train_lightning.py
"""

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

from everstep.integrations.lightning import EverstepCallback

OPTIONS = digits.options(__doc__)
STEPS_PER_EPOCH = 25
Batch = tuple[torch.Tensor, torch.Tensor]


class Network(LightningModule):  # type: ignore[misc]  # its types are left out
    """Two layers, trained with a learning rate that falls after every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10)
        )

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Return the loss, and tell it."""
        images, labels = batch
        loss = cross_entropy(self.layers(images), labels)
        digits.tell(self.global_step, float(loss.detach()), OPTIONS)
        return loss

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[ExponentialLR]]:
        """Return the optimizer and its schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.003)
        return [optimizer], [ExponentialLR(optimizer, 0.9)]


class Batches(IterableDataset[Batch]):
    """The batches of an epoch from the step that comes next."""

    def __init__(self, callback: EverstepCallback) -> None:
        self._callback = callback

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __iter__(self) -> Iterator[Batch]:
        data, first = digits.load(), self._callback.next_step
        for step in range(first, first - first % STEPS_PER_EPOCH + STEPS_PER_EPOCH):
            images, labels = map(torch.from_numpy, data.batch(OPTIONS.seed, step))
            yield images, labels


def main() -> None:
    seed_everything(OPTIONS.seed)
    callback = EverstepCallback()
    trainer = Trainer(
        accelerator="cpu",
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
