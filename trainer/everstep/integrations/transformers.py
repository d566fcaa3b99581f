"""Every step of a Hugging Face Trainer is told and saved, and comes back after a failure.

    callback = EverstepCallback()
    Trainer(model, args, train_dataset=batches, callbacks=[callback]).train()

``batches`` is a torch IterableDataset whose first sample is the first of ``callback.next_step``:
the Trainer's own samplers begin anew in every process, and no callback can move them.
"""

from collections.abc import Collection, Mapping
from typing import Protocol, SupportsFloat

from torch.utils.data import IterableDataset
from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]

from everstep.integrations.held_random import HeldRandom
from everstep.run import Run, init
from everstep.saving.snapshotter import Snapshots
from everstep.state.objects import Stateful


class TrainerState(Protocol):
    """How far the Trainer is."""

    global_step: int


class EverstepCallback(TrainerCallback):  # type: ignore[misc]  # its package has no types
    """Restores before the first step, and saves after each. Raises as `Run.snapshots` does.

    With ``report_losses`` it calls `Run.report` for each loss that the Trainer logs, and does about
    a bad one what ``run`` was told (`everstep.init(on_nan="rollback")`).
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        overlap: bool = False,
        equal: Collection[str] = (),
        report_losses: bool = False,
    ) -> None:
        self._run = run or init()
        self._overlap, self._equal = overlap, equal
        self._report_losses = report_losses
        self._snapshots: Snapshots | None = None
        self._random = HeldRandom()
        self.next_step = 0

    def on_train_begin(
        self, args: object, state: TrainerState, control: object, **known: object
    ) -> None:
        """Put back the step of the recovery plan. Raises ValueError, RestoreError."""
        _refuse_samplers(known["train_dataloader"])
        if self._report_losses:
            _refuse_filter(args)
        objects = {
            "model": known["model"],
            # Accelerate wraps it; the one inside knows its parameters.
            "optimizer": getattr(known["optimizer"], "optimizer", known["optimizer"]),
            "scheduler": known["lr_scheduler"],
        }
        parts = {name: one for name, one in objects.items() if isinstance(one, Stateful)}
        self._snapshots = self._run.snapshots(parts, overlap=self._overlap, equal=self._equal)
        restored = self._snapshots.restore()
        if restored is not None:
            self.next_step = state.global_step = restored + 1
            self._random.hold()

    def on_step_begin(
        self, args: object, state: TrainerState, control: object, **known: object
    ) -> None:
        """Draw on where the restored step had ended."""
        self._random.give_back()

    def on_step_end(
        self, args: object, state: TrainerState, control: object, **known: object
    ) -> None:
        """Save the step, and tell that it is complete."""
        step = state.global_step - 1  # the Trainer has counted it already
        if self._snapshots:
            self._snapshots.snapshot(step)
        self._run.step(step)

    def on_log(self, args: object, state: TrainerState, control: object, **known: object) -> None:
        """Tell the loss, where that is asked for; it is the mean of ``logging_steps`` steps."""
        logs = known.get("logs")
        loss = logs.get("loss") if isinstance(logs, Mapping) else None
        if self._report_losses and isinstance(loss, SupportsFloat):
            self._run.report(max(0, state.global_step - 1), loss=loss)

    def on_train_end(
        self, args: object, state: TrainerState, control: object, **known: object
    ) -> None:
        """Wait for the last snapshot."""
        if self._snapshots:
            self._snapshots.join()


def _refuse_filter(args: object) -> None:
    if getattr(args, "logging_nan_inf_filter", False):
        raise ValueError(
            "report_losses: the Trainer hides losses that are no numbers from its log; set"
            " logging_nan_inf_filter=False, and logging_steps=1 to see each"
        )


def _refuse_samplers(loader: object) -> None:
    if not isinstance(getattr(loader, "dataset", None), IterableDataset):
        raise ValueError(
            "the Trainer's sampler cannot be put back to a step: give train_dataset an"
            " IterableDataset that begins at EverstepCallback.next_step"
        )
