"""Rank of a vault benchmark: trains a transformer on a GPU, with a snapshot at every second step.

Arguments: layers, width. Answers "copy" with [pinned GB/s, snapshot GB/s], "round" with the
seconds of a step [without, with] and of the snapshot() call.
"""

import json
import sys
import time

import torch

import everstep

_HEADS = 16
_SEQUENCE = 1024
_BATCH = 8
_VOCABULARY = 32_000


class Training:
    """A transformer with AdamW, whose parameters and moments are the state."""

    def __init__(self, layers: int, width: int) -> None:
        layer = torch.nn.TransformerEncoderLayer(
            width, _HEADS, 4 * width, batch_first=True, device="cuda", dtype=torch.bfloat16
        )
        self._model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=True)
        self._batch = torch.randn(_BATCH, _SEQUENCE, width, device="cuda", dtype=torch.bfloat16)
        self.step(None)  # the optimizer has its moments from here on
        state = {"model": self._model, "optimizer": self._optimizer}
        self._snapshots = everstep.init().snapshots(state, overlap=True)
        self.size_bytes = sum(tensor.nbytes for tensor in self._tensors())

    def step(self, save: int | None) -> tuple[float, float]:
        """Return the seconds of a step, and of its call of snapshot()."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        if save is not None and not self._snapshots.snapshot(save):
            raise SystemExit(f"step {save} was not saved")
        called_s = time.perf_counter() - began
        self._model(self._batch).float().square().mean().backward()
        self._optimizer.step()  # its pre-hook waits for the snapshot
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return time.perf_counter() - began, called_s

    def copy(self, save: int) -> tuple[float, float]:
        """Return GB/s to pinned memory, and of a snapshot that is waited for at once."""
        tensors = self._tensors()
        pinned = [torch.empty_like(one, device="cpu", pin_memory=True) for one in tensors]
        torch.cuda.synchronize()
        began = time.perf_counter()
        for to, of in zip(pinned, tensors, strict=True):
            to.copy_(of, non_blocking=True)
        torch.cuda.synchronize()
        limit = self.size_bytes / 1e9 / (time.perf_counter() - began)
        began = time.perf_counter()
        self._snapshots.snapshot(save)
        self._snapshots.join()
        return limit, self.size_bytes / 1e9 / (time.perf_counter() - began)

    def _tensors(self) -> list[torch.Tensor]:
        moments = [
            one
            for each in self._optimizer.state.values()
            for one in each.values()
            if isinstance(one, torch.Tensor) and one.is_cuda
        ]
        return [*self._model.parameters(), *moments]


def main(layers: int, width: int) -> None:
    """Serve until standard input ends."""
    if not torch.cuda.is_available():
        print(json.dumps("no GPU here"), flush=True)
        return
    training = Training(layers, width)
    print(json.dumps("ready"), flush=True)
    step = 0
    while word := sys.stdin.readline().strip():
        step += 1
        if word == "copy":
            answer: object = training.copy(step)
        else:
            without, _ = training.step(None)
            answer = (without, *training.step(step))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
