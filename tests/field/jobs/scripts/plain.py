"""Unchanged script: softmax regression on handwritten digits, data-parallel, with checkpoints.

It imports nothing of Everstep. How it tells its steps, and what it does between them, are options:
the shapes of scripts that people have.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import collections  # noqa: E402
import itertools  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from together import Array, Together  # noqa: E402

BATCH = 96


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step-seconds-min", type=float, default=0.0)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--checkpoint-every", type=int, default=20)
    parser.add_argument("--save-seconds", type=float, default=0.0, help="of slow storage")
    parser.add_argument(
        "--pack-seconds", type=float, default=0.0, help="of C code that keeps Python's lock"
    )
    parser.add_argument("--tell", choices=("steps", "bar", "nothing"), default="steps")
    parser.add_argument("--accumulate", type=int, default=1, help="parts of each step's batch")
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--evaluate-seconds", type=float, default=0.0)
    parser.add_argument(
        "--load-seconds", type=float, default=0.0, help="of a slow loader, at times"
    )
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


def save(path: Path, weights: Array, step: int, seconds: float) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    until = time.monotonic() + seconds
    with partial.open("wb") as file:
        while time.monotonic() < until:
            file.write(bytes(1 << 16))
            os.fsync(file.fileno())
            time.sleep(0.05)
            file.seek(0)
        np.savez(file, weights=weights, step=step)
    partial.replace(path)


def pack(seconds: float) -> None:
    """Copy a text again and again without giving the interpreter's lock back, as a pickler may."""
    text = "x" * (1 << 26)
    began = time.monotonic()
    text.encode()
    count = int(seconds / (time.monotonic() - began))
    collections.deque(map(str.encode, itertools.repeat(text, count)), maxlen=0)


def read(path: Path, part: int) -> None:
    with path.open("rb", buffering=0) as samples:
        os.pread(samples.fileno(), 4096, part << 18)


def steps_told(options: argparse.Namespace, first: int, rank: int) -> Iterable[int]:
    """Return the steps to come, as the script shows them."""
    steps = range(first, options.steps)
    if options.tell == "bar" and rank == 0:
        from tqdm import tqdm  # type: ignore[import-untyped]

        shown: Iterable[int] = tqdm(steps, initial=first, total=options.steps, desc="train")
        return shown
    return steps


def main() -> None:
    options = parse()
    together = Together()
    data = np.load(Path(__file__).with_name("digits.npz"))
    images = data["images"].reshape(-1, 64) / 16.0
    labels = data["labels"].astype(np.float64)
    weights = np.zeros((64, 10))
    first = load(options.checkpoint, weights)
    for step in steps_told(options, first, together.rank):
        due = time.monotonic() + options.step_seconds_min
        random = np.random.default_rng([options.seed, step])
        picked = random.integers(len(labels), size=BATCH)[together.rank :: together.size]
        if options.samples:
            read(options.samples, step * together.size + together.rank)
        if options.load_seconds and step % 50 == 25:
            time.sleep(options.load_seconds)
        own = np.zeros((65, 10))
        for part in np.array_split(picked, options.accumulate):
            own += gradient(weights, images[part], labels[part])
        total = together.sum(own) / BATCH
        weights -= 0.3 * total[:-1]
        if together.rank == 0:
            finish(options, step, float(total[-1, 0]), weights)
        time.sleep(max(0.0, due - time.monotonic()))


def finish(options: argparse.Namespace, step: int, loss: float, weights: Array) -> None:
    """Tell, save and evaluate, as rank 0 does it."""
    with options.losses.open("a") as file:
        file.write(f"{step}\t{loss.hex()}\n")
    if options.tell == "steps":
        print(f"step {step} loss {loss:.4f}", flush=True)
    if (step + 1) % options.checkpoint_every == 0:
        if options.pack_seconds:
            pack(options.pack_seconds)
        save(options.checkpoint, weights, step, options.save_seconds)
    if options.evaluate_every and (step + 1) % options.evaluate_every == 0:
        time.sleep(options.evaluate_seconds)


if __name__ == "__main__":
    main()
