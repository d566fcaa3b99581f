"""What the torch and Paddle examples share: data, batches, options, and how a loss is told.

digits.npz holds 1,797 images of handwritten digits; where they are from says train_numpy.py.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GLOBAL_BATCH = 96
MICRO_BATCH = 24  # as many as fit on a device at once
PIXELS, CLASSES = 64, 10


class Digits(NamedTuple):
    """Images, one per row, and what each of them shows."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def batch(self, seed: int, step: int) -> "Digits":
        """Return the global batch of a step: never a matter of rank or restart."""
        random = np.random.default_rng([seed, step])
        picked = random.integers(len(self.labels), size=GLOBAL_BATCH)
        return Digits(self.images[picked], self.labels[picked])


def load() -> Digits:
    """Return the images, their brightness from 0 to 1."""
    data = np.load(Path(__file__).parent / "digits.npz")
    images = data["images"].reshape(-1, PIXELS) / np.float32(16.0)
    return Digits(images.astype(np.float32), data["labels"].astype(np.int64))


def options(description: str | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--losses", type=Path, help="append 'step<TAB>loss' to this file")
    parser.add_argument("--step-seconds-min", type=float, default=0.0, help="to watch it train")
    return parser.parse_args()


def tell(step: int, loss: float, options: argparse.Namespace) -> None:
    """Print the loss of a step, before its snapshot: then a step not repeated was printed."""
    print(f"step {step} loss {loss:.6f}", flush=True)
    if options.losses:
        with options.losses.open("a") as file:
            file.write(f"{step}\t{loss.hex()}\n")
    time.sleep(options.step_seconds_min)
