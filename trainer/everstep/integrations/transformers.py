"""Callback for the Hugging Face Trainer: tells and saves every step, restores after a failure.

    callback = EverstepCallback()
    Trainer(model, args, train_dataset=batches, callbacks=[callback]).train()

``batches`` is a torch IterableDataset whose first sample is the first of ``callback.next_step``:
the Trainer's own samplers start from scratch in every process, and no callback can move them.
"""

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Protocol, SupportsFloat
from weakref import ReferenceType, ref

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset
from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
from transformers.trainer_utils import has_length  # pyright: ignore[reportMissingImports]

from everstep.integrations.restored_random import RestoredRandomState
from everstep.run import Run, init
from everstep.saving.snapshotter import Snapshots
from everstep.state.objects.kinds import Stateful

# What the Trainer counts beside steps. Its list of logs is left out: it grows with every log.
_COUNTED = (
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
    "num_input_tokens_seen",
    "total_flos",
)


class Arguments(Protocol):
    """Training arguments of the Trainer."""

    gradient_accumulation_steps: int


class TrainerState(Protocol):
    """Progress of the Trainer."""

    epoch: float
    global_step: int
    max_steps: int


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
        equal: Collection[object] = (),
        report_losses: bool = False,
    ) -> None:
        self._run = run or init()
        self._overlap, self._equal = overlap, equal
        self._report_losses = report_losses
        self._snapshots: Snapshots | None = None
        self._random = RestoredRandomState()
        self._pause = ExitStack()
        self._replicas = _Replicas()
        self._restored = False
        self._steps_per_epoch = 1
        self.next_step = 0

    def on_train_begin(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Put back the step of the recovery plan. Raises ValueError, RestoreError."""
        loader = known["train_dataloader"]
        _refuse_samplers(loader)
        if self._report_losses:
            _refuse_filter(args)
        self._snapshots = self._run.snapshots(
            _parts(state, known),
            overlap=self._overlap,
            equal=(*self._equal, *self._replicas.made()),
        )
        restored = self._snapshots.restore()
        self._steps_per_epoch = _steps_per_epoch(loader, args, state)
        if restored is not None:
            self._restored = True
            self.next_step = state.global_step = restored + 1
            self._random.hold()

    def on_epoch_begin(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Draw on from before an epoch, whose data loader draws its seed at its start."""
        if self.next_step % self._steps_per_epoch == 0:
            self._random.give_back()

    def on_step_begin(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Draw on where the restored step had ended; what was no step is over."""
        self._pause.close()
        self._random.give_back()

    def on_step_end(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Save the step, and tell that it is complete."""
        self.next_step = state.global_step
        if self._restored:  # the Trainer counts its epochs from the process's start
            state.epoch = state.global_step / self._steps_per_epoch
        step = state.global_step - 1  # the Trainer has counted it already
        if self._snapshots:
            self._snapshots.snapshot(step)
        self._run.step(step)
        self._pause_before(control)

    def on_epoch_end(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Expect no step while the Trainer evaluates or saves."""
        self._pause_before(control)

    def _pause_before(self, control: object) -> None:
        """Begin a pause until the next step, where an evaluation or a save comes first."""
        for wanted, name in (("should_evaluate", "evaluation"), ("should_save", "checkpoint")):
            if getattr(control, wanted, False):
                self._pause.close()
                self._pause.enter_context(self._run.pause(name))
                return

    def on_log(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Tell the loss, where that is asked for; it is the mean of ``logging_steps`` steps."""
        logs = known.get("logs")
        loss = logs.get("loss") if isinstance(logs, Mapping) else None
        if self._report_losses and isinstance(loss, SupportsFloat):
            self._run.report(max(0, state.global_step - 1), loss=loss)

    def on_train_end(
        self, args: Arguments, state: TrainerState, control: object, **known: object
    ) -> None:
        """Wait for the last snapshot."""
        self._pause.close()
        if self._snapshots:
            self._snapshots.join()


class _Replicas:
    """Wrapper by which the Trainer averages gradients; callbacks see only the model inside."""

    def __init__(self) -> None:
        self._made: list[ReferenceType[DistributedDataParallel]] = []
        self._hook = register_module_module_registration_hook(self._registered)

    def made(self) -> list[DistributedDataParallel]:
        """Return those that were made since the callback was, and look for no more."""
        self._hook.remove()
        return [one for reference in self._made if (one := reference()) is not None]

    def _registered(self, outer: nn.Module, name: str, inner: object) -> None:
        if isinstance(outer, DistributedDataParallel):
            self._made.append(ref(outer))


class _Counts:
    """Counters of the Trainer, as a part of the state."""

    def __init__(self, state: TrainerState) -> None:
        self._state = state

    def state_dict(self) -> dict[str, object]:
        """Return it."""
        return {name: getattr(self._state, name) for name in _COUNTED if hasattr(self._state, name)}

    def load_state_dict(self, counts: Mapping[str, object]) -> None:
        """Count on from there."""
        for name, value in counts.items():
            setattr(self._state, name, value)


def _parts(state: TrainerState, known: Mapping[str, object]) -> dict[str, Stateful]:
    optimizer = known["optimizer"]
    objects = {
        "model": known["model"],
        # Accelerate wraps it; the one inside knows its parameters, the wrapper how they are scaled.
        "optimizer": getattr(optimizer, "optimizer", optimizer),
        "scaler": getattr(optimizer, "scaler", None),
        "scheduler": known["lr_scheduler"],
        "trainer": _Counts(state),
    }
    return {name: one for name, one in objects.items() if isinstance(one, Stateful)}


def _steps_per_epoch(loader: object, args: Arguments, state: TrainerState) -> int:
    """Return it as the Trainer counts; data without a length is one epoch."""
    if not has_length(loader):
        return state.max_steps
    batches: int = len(loader)  # type: ignore[arg-type]  # just found out
    return max(1, -(-batches // args.gradient_accumulation_steps))


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
