"""The job of `job.py`, which also writes down what its state is after each step and restore."""

import os
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

import everstep
from with_torch.job import KINDS, Kept, Snapshotted, main
from with_torch.state_digest import state_digest


class Told:
    """A training whose states are told, a line for each, beside the losses of its generation."""

    def __init__(self, training: Kept) -> None:
        assert isinstance(training, Snapshotted)
        self._training = training
        generation = os.environ["EVERSTEP_GENERATION"]
        self._states = Path(os.environ["LOSSES"]) / f"{generation}.states"

    def restore(self) -> int | None:
        step = self._training.restore()
        if step is not None:
            self._tell("restored", step)
        return step

    def step(self, step: int) -> float:
        loss = self._training.step(step)
        self._tell("after", step)
        return loss

    def save(self, step: int) -> bool:
        return self._training.save(step)

    def _tell(self, what: str, step: int) -> None:
        digest = state_digest(self._training.model, self._training.optimizer)
        if dist.get_rank() == 0:
            with self._states.open("a", encoding="ascii") as states:
                states.write(f"{what}\t{step}\t{digest}\n")


def _told(kind: Callable[[everstep.Run], Kept]) -> Callable[[everstep.Run], Kept]:
    return lambda run: Told(kind(run))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main({name: _told(kind) for name, kind in KINDS.items() if name.endswith("-steady")})
