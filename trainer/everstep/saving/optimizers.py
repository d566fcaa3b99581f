"""Optimizer hooks: an update waits until the snapshot of the step before has been copied."""

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable


class Settling(Protocol):
    """Snapshots that may still be copying the state."""

    def settle(self) -> None:
        """Return when the state may change."""
        ...


class _Handle(Protocol):
    def remove(self) -> None: ...


@runtime_checkable
class _Optimizer(Protocol):
    """Optimizer with the hook of torch.optim.Optimizer, whatever library it comes from."""

    def register_step_pre_hook(self, hook: Callable[..., None], /) -> _Handle:
        """Have the hook called before each update."""
        ...


def settle_before_updates(parts: Iterable[object], snapshots: Settling) -> None:
    """Have every optimizer settle the snapshot before it updates anything.

    Every one of torch's in this process, for one that is no part of the state may change a model
    that is; and the parts of the state that have such a hook of their own.
    """
    reference = weakref.ref(snapshots)

    def settle(*_: object) -> None:
        if (still := reference()) is not None:
            still.settle()

    handles = [
        part.register_step_pre_hook(settle) for part in parts if isinstance(part, _Optimizer)
    ]
    if "torch" in sys.modules:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        handles.append(register_optimizer_step_pre_hook(settle))
    for handle in handles:
        if hasattr(handle, "remove"):
            weakref.finalize(snapshots, handle.remove).atexit = False
