"""Trains on handwritten digits by the Hugging Face Trainer, and survives every failure.

In a job:    everstep run --job digits --nproc-per-node 2 train_transformers.py --steps 2000
On its own:  python train_transformers.py

On several ranks the Trainer averages gradients by DistributedDataParallel.
"""

import tempfile
from collections.abc import Iterator

import digits
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import IterableDataset
from transformers import (  # pyright: ignore[reportMissingImports]
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import everstep
from everstep.integrations.transformers import EverstepCallback

OPTIONS = digits.options(__doc__)


class Network(nn.Module):
    """A model in the Trainer's manner: it computes its loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 10)
        )
        self.losses: list[torch.Tensor] = []

    def forward(self, image: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss."""
        loss = cross_entropy(self.layers(image), labels)
        self.losses.append(loss.detach())
        return {"loss": loss}


class Batches(IterableDataset[dict[str, torch.Tensor]]):
    """The images of every step from the one that comes next; each rank is given its part."""

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
        """Tell the loss of the step that has just been counted, over all ranks."""
        loss = torch.stack(model.losses).mean()
        model.losses.clear()
        if dist.is_initialized():
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
        if state.is_world_process_zero:  # type: ignore[attr-defined]
            digits.tell(state.global_step - 1, float(loss), OPTIONS)  # type: ignore[attr-defined]


def arguments(folder: str, world_size: int) -> TrainingArguments:
    """Return what the Trainer is told: the same global batch on 1, 2 or 4 ranks."""
    return TrainingArguments(
        output_dir=folder,
        max_steps=OPTIONS.steps,
        per_device_train_batch_size=digits.MICRO_BATCH,
        gradient_accumulation_steps=digits.GLOBAL_BATCH // (digits.MICRO_BATCH * world_size),
        learning_rate=0.003,
        seed=OPTIONS.seed,
        use_cpu=True,
        ddp_backend="gloo" if world_size > 1 else None,
        # Each rank reads the data; otherwise rank 0 does for all, and after the last step, when
        # there is nothing left to read, a restored job would end with an exception.
        accelerator_config={"dispatch_batches": False},
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )


def main() -> None:
    run = everstep.init()
    torch.manual_seed(OPTIONS.seed)
    callback = EverstepCallback(run)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            Network(),
            arguments(folder, run.world_size),
            train_dataset=Batches(callback),
            callbacks=[Tell(), callback],
        )
        torch.manual_seed(OPTIONS.seed + run.rank)  # each rank drops other pixels
        trainer.train()


if __name__ == "__main__":
    main()
