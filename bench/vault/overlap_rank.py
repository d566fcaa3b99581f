"""Rank of a vault benchmark: steps that compute on one core, every second one with a snapshot.

Arguments: bytes of state, seconds of a step, "overlapped" or "plain". "round" → [without, with].
"""

import itertools
import sys
import time

import torch
from harness.talk import serve
from harness.waits import until_idle

import everstep

_TENSORS = 16
_SIDE = 1024


class Training:
    """A state, and a step of matrix products that takes about so long on one core."""

    def __init__(self, size_bytes: int, step_s: float, *, overlap: bool) -> None:
        each = size_bytes // _TENSORS // 4
        self._state = {f"layer-{number}": torch.rand(each) for number in range(_TENSORS)}
        self._left, self._right = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE)
        self._overlap = overlap
        arrays = {name: tensor.numpy() for name, tensor in self._state.items()}
        run = everstep.init()
        self._snapshots = run.snapshots(arrays, overlap=True) if overlap else run.snapshots(arrays)
        self._products = 10
        took_s = min(self.step(None) for _ in range(5))
        self._products = max(1, round(self._products * step_s / took_s))

    def step(self, save: int | None) -> float:
        """Return how long a step took, which begins with the snapshot of the one before."""
        until_idle()
        began = time.perf_counter()
        if save is not None and not self._snapshots.snapshot(save):
            raise SystemExit(f"step {save} was not saved")
        for _ in range(self._products):
            torch.mm(self._left, self._right)
        if save is not None and self._overlap:
            self._snapshots.join()  # where the optimizer would change the state
        return time.perf_counter() - began


def main(size_bytes: int, step_s: float, manner: str) -> None:
    """Serve until standard input ends."""
    torch.set_num_threads(1)
    training = Training(size_bytes, step_s, overlap=manner == "overlapped")
    steps = itertools.count(1)
    serve(lambda _: [training.step(None), training.step(next(steps))])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
