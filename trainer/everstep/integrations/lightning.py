"""Callback for the Lightning Trainer: tells and saves every step, and restores after a failure.

    callback = LightningCallback()
    Trainer(callbacks=[callback], ...).fit(module, loader)

Lightning's own loops go on where they were, in the middle of an epoch too. ``loader`` either has
``state_dict`` (torchdata's StatefulDataLoader), or its dataset begins at ``callback.next_step``.
"""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import SupportsFloat

from lightning.pytorch import (  # pyright: ignore[reportMissingImports]
    Callback,
    LightningModule,
    Trainer,
)

from everstep.integrations.restored_random import RestoredRandomState
from everstep.run import Run, init
from everstep.saving.snapshotter import Snapshots
from everstep.state.objects.kinds import Stateful


class LightningCallback(Callback):  # type: ignore[misc]  # its types are left out
    """Restores before the first step, and saves after each. Raises as `Run.snapshots` does.

    With ``report_losses`` it calls `Run.report` for each batch, which waits for the loss, and does
    about a bad one what ``run`` was told (`everstep.init(on_nan="rollback")`).
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        overlap: bool = False,
        equal: Collection[object] = (),
        report_losses: bool = False,
    ) -> None:
        self._run = run or init()
        self._overlap, self._equal = overlap, equal
        self._report_losses = report_losses
        self._snapshots: Snapshots | None = None
        self._random = RestoredRandomState()
        self._pause = ExitStack()
        self.next_step = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put back the step of the recovery plan, before any data is fetched."""
        self._snapshots = self._run.snapshots(
            self._state(trainer), overlap=self._overlap, equal=self._equal
        )
        if self._snapshots.restore() is not None:
            self._random.hold()
        self.next_step = trainer.global_step

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Draw on where the restored step had ended."""
        self._random.give_back()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Save the step and tell that it is complete, once its gradients are accumulated."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if self._report_losses and isinstance(loss, SupportsFloat):
            self._run.report(self.next_step, loss=loss)
        if trainer.global_step == self.next_step:
            return
        self.next_step = trainer.global_step
        step = trainer.global_step - 1  # Lightning has counted it already
        if self._snapshots:
            self._snapshots.snapshot(step)
        self._run.step(step)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Expect no step until it is over."""
        self._pause.enter_context(self._run.pause("evaluation"))

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Expect steps again."""
        self._pause.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Expect steps again of a script that goes on after its evaluation has failed."""
        self._pause.close()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Wait for the last snapshot."""
        if self._snapshots:
            self._snapshots.join()

    def _state(self, trainer: Trainer) -> Mapping[str, Stateful]:
        """Return what Lightning's own checkpoints hold."""
        schedules = [one.scheduler for one in trainer.lr_scheduler_configs]
        # Attributes of which Lightning does not tell type checkers.
        callbacks: list[object] = getattr(trainer, "callbacks", [])
        data = getattr(trainer, "datamodule", None)
        others = [one for one in callbacks if one is not self and _has_state(one)]
        objects = {
            "model": trainer.model,
            "loops": trainer.fit_loop,
            **{f"optimizer-{n}": one for n, one in enumerate(trainer.optimizers)},
            **{f"schedule-{n}": one for n, one in enumerate(schedules)},
            **{f"callback-{n}": one for n, one in enumerate(others)},
        }
        if _has_state(trainer.precision_plugin):
            objects["precision"] = trainer.precision_plugin
        if _has_state(data):
            objects["data"] = data
        return {name: one for name, one in objects.items() if isinstance(one, Stateful)}


def _has_state(one: object) -> bool:
    """Return whether there is anything to save: most of these have an empty state."""
    return isinstance(one, Stateful) and bool(one.state_dict())
