"""What the callbacks declare as no step, while the real trainers evaluate and save."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from everstep.run import Run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class NotedRun(Run):
    """A run outside a job that notes its pauses."""

    def __init__(self) -> None:
        super().__init__(None, None, {})
        self.noted: list[str] = []

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        self.noted.append(name)
        yield
        self.noted.append("over")


class Endless(IterableDataset[dict[str, torch.Tensor]]):
    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        while True:
            yield {"x": torch.ones(2)}


class Four(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.ones(2)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.inner(x).pow(2).mean()}


def test_the_hugging_face_trainer_evaluates_and_saves_in_a_pause(tmp_path: Path) -> None:
    from transformers import (  # pyright: ignore[reportMissingImports]
        Trainer,
        TrainingArguments,
    )

    from everstep.integrations.transformers import EverstepCallback

    run = NotedRun()
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=5,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=3,
        report_to=[],
        use_cpu=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        Model(),
        arguments,
        train_dataset=Endless(),
        eval_dataset=Four(),
        callbacks=[EverstepCallback(run)],
    )
    trainer.train()
    # After steps 2, 3 and 4, and at the end.
    assert run.noted[:6] == ["evaluation", "over", "checkpoint", "over", "evaluation", "over"]
    assert run.noted[-1] == "over"


# Lightning warns where Slurm is installed, as it is for other tests, and uses what torch gives up.
@pytest.mark.filterwarnings("ignore:The `srun` command")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_lightning_evaluates_in_a_pause() -> None:
    import lightning  # pyright: ignore[reportMissingImports]

    from everstep.integrations.lightning import LightningCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]  # its types are left out
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss: torch.Tensor = self.inner(batch).pow(2).mean()
            return loss

        def validation_step(self, batch: torch.Tensor, index: int) -> None:
            return None

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    run = NotedRun()
    loader: DataLoader[torch.Tensor] = DataLoader(torch.ones(8, 2), batch_size=2)  # type: ignore[arg-type]
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[LightningCallback(run)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Module(), loader, loader)
    # Its check before the first step, and each epoch.
    assert run.noted == ["evaluation", "over"] * 3
