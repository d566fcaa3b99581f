"""Trains on handwritten digits by the Hugging Face Trainer, and survives every failure.

In a job:    everstep run --job digits --nproc-per-node 1 train_transformers.py --steps 2000
On its own:  python train_transformers.py
"""

import tempfile
from collections.abc import Iterator

import digits
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import IterableDataset
from transformers import (  # pyright: ignore[reportMissingImports]
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from everstep.integrations.transformers import EverstepCallback

OPTIONS = digits.options(__doc__)


class Network(nn.Module):
    """A model in the Trainer's manner: it computes its loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10)
        )
        self.last_loss = 0.0

    def forward(self, image: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss."""
        loss = cross_entropy(self.layers(image), labels)
        self.last_loss = float(loss.detach())
        return {"loss": loss}


class Batches(IterableDataset[dict[str, torch.Tensor]]):
    """The images of every step from the one that comes next, one after the other."""

    def __init__(self, callback: EverstepCallback) -> None:
        self._callback = callback

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        data = digits.load()
        for step in range(self._callback.next_step, OPTIONS.steps):
            images, labels = map(torch.from_numpy, data.batch(OPTIONS.seed, step))
            for image, label in zip(images, labels, strict=True):
                yield {"image": image, "labels": label}


class Tell(TrainerCallback):  # type: ignore[misc]  # its package has no types
    """Prints the loss of every step."""

    def on_step_end(
        self, args: object, state: object, control: object, *, model: Network, **known: object
    ) -> None:
        """Tell the loss of the step that has just been counted."""
        step = state.global_step - 1  # type: ignore[attr-defined]
        digits.tell(step, model.last_loss, OPTIONS)


def main() -> None:
    torch.manual_seed(OPTIONS.seed)
    callback = EverstepCallback()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=OPTIONS.steps,
            per_device_train_batch_size=digits.GLOBAL_BATCH,
            learning_rate=0.003,
            seed=OPTIONS.seed,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        callbacks = [Tell(), callback]
        Trainer(Network(), arguments, train_dataset=Batches(callback), callbacks=callbacks).train()


if __name__ == "__main__":
    main()
