"""Run of this process, for scripts that do not carry one around: ``everstep.snapshots(...)``."""

import os
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import SupportsFloat

from everstep.copy_engine.views import State
from everstep.loss import LossPolicy, OnBad
from everstep.run import Run, init
from everstep.saving.policy import Hasher, OnFull
from everstep.saving.snapshotter import Snapshots


class _Process:
    """The run of this process; a forked child has none until it asks."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._pid = 0

    def run(self) -> Run:
        if self._run is None or self._pid != os.getpid():
            self._run, self._pid = init(), os.getpid()
        return self._run


# A process has one place in its job, which its environment says: as with logging's root, two parts
# of a script that ask for it mean the same one.
_process = _Process()


def snapshots(
    state: State,
    *,
    overlap: bool = False,
    on_full: OnFull = "block",
    wait_s: float | None = None,
    hash: Hasher = "agent",
    raises: bool = False,
    equal: Collection[object] = (),
    replaceable: Collection[str] = (),
) -> Snapshots:
    """Return the snapshots of this process's state; see `Run.snapshots`."""
    return _process.run().snapshots(
        state,
        overlap=overlap,
        on_full=on_full,
        wait_s=wait_s,
        hash=hash,
        raises=raises,
        equal=equal,
        replaceable=replaceable,
    )


def report(
    step: int | None = None,
    *,
    loss: SupportsFloat,
    on_nan: OnBad,
    on_spike: OnBad = "ignore",
    spike_ratio: float = 0.0,
    skip_batches: int = 0,
) -> None:
    """Tell the loss of ``step``, or of the one in hand, before its snapshot; see `Run.report`.

    The others say what is done about a bad one, as in `init`; say the same each time. Raises
    BadStepError, ValueError.
    """
    run = _process.run()
    run.judge_losses_by(
        LossPolicy(
            on_nan=on_nan, on_spike=on_spike, spike_ratio=spike_ratio, skip_batches=skip_batches
        )
    )
    run.report(step, loss=loss)


def phase(name: str) -> None:
    """Tell that a part of the step begins; see `Run.phase`."""
    _process.run().phase(name)


def pause(name: str) -> AbstractContextManager[None]:
    """Return a context in which no step is expected; see `Run.pause`."""
    return _process.run().pause(name)


def waiting() -> AbstractContextManager[None]:
    """Return a context in which this rank waits for others; see `Run.waiting`."""
    return _process.run().waiting()


def role(name: str) -> None:
    """Tell which part of the model this rank computes; see `Run.role`."""
    _process.run().role(name)


def step(step: int) -> None:
    """Tell that ``step`` is complete; call after its snapshot. Never waits, never raises."""
    _process.run().step(step)
