"""Unchanged script: softmax regression on handwritten digits, data-parallel, with checkpoints.

It imports nothing of Everstep. How it tells its steps, and what it does between them, are options.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402

import between_steps  # noqa: E402
import numpy as np  # noqa: E402
from together import Array, Together  # noqa: E402

BATCH = 96


def parse() -> argparse.Namespace:
    parser = between_steps.parser()
    parser.add_argument("--accumulate", type=int, default=1, help="parts of each step's batch")
    parser.add_argument("--samples", type=Path, help="read a part of it in each step")
    return parser.parse_args()


def gradient(weights: Array, images: Array, labels: Array) -> Array:
    """Return the gradient of the summed loss, and the loss in a last row."""
    logits = images @ weights
    logits -= logits.max(axis=1, keepdims=True)
    sums = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    error = np.exp(logits - sums)
    loss = float((sums[:, 0] - logits[rows, labels.astype(int)]).sum())
    error[rows, labels.astype(int)] -= 1.0
    last = np.zeros((1, weights.shape[1]))
    last[0, 0] = loss
    return np.vstack([images.T @ error, last])


def load(path: Path, weights: Array) -> int:
    """Fill the weights from a checkpoint; return the step that comes next."""
    if not path.exists():
        return 0
    with np.load(path) as saved:
        weights[...] = saved["weights"]
        return int(saved["step"]) + 1


def read(path: Path, part: int) -> None:
    with path.open("rb", buffering=0) as samples:
        os.pread(samples.fileno(), 4096, part << 18)


def main() -> None:
    options = parse()
    together = Together()
    data = np.load(Path(__file__).with_name("digits.npz"))
    images = data["images"].reshape(-1, 64) / 16.0
    labels = data["labels"].astype(np.float64)
    weights = np.zeros((64, 10))
    first = load(options.checkpoint, weights)
    for step in between_steps.steps_told(options, first, together.rank):
        due = time.monotonic() + options.step_seconds_min
        random = np.random.default_rng([options.seed, step])
        picked = random.integers(len(labels), size=BATCH)[together.rank :: together.size]
        if options.samples:
            read(options.samples, step * together.size + together.rank)
        between_steps.await_data(options, step)
        own = np.zeros((65, 10))
        for part in np.array_split(picked, options.accumulate):
            own += gradient(weights, images[part], labels[part])
        total = together.sum(own) / BATCH
        weights -= 0.3 * total[:-1]
        if together.rank == 0:
            write = partial(np.savez, weights=weights, step=step)
            between_steps.finish(options, step, float(total[-1, 0]), write)
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
