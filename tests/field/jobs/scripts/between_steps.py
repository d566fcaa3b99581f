"""What unchanged scripts do between their steps, as options: the scripts that people have.

It imports nothing of Everstep, and no framework.
"""

import argparse
import collections
import itertools
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO


def parser() -> argparse.ArgumentParser:
    """Return the options that all these scripts have."""
    made = argparse.ArgumentParser()
    made.add_argument("--steps", type=int, default=200)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--step-seconds-min", type=float, default=0.0)
    made.add_argument("--losses", type=Path, required=True)
    made.add_argument("--checkpoint", type=Path, required=True)
    made.add_argument("--checkpoint-every", type=int, default=20)
    made.add_argument("--save-seconds", type=float, default=0.0, help="of slow storage")
    made.add_argument(
        "--pack-seconds", type=float, default=0.0, help="of C code that keeps Python's lock"
    )
    made.add_argument("--tell", choices=("steps", "bar", "nothing"), default="steps")
    made.add_argument("--evaluate-every", type=int, default=0)
    made.add_argument("--evaluate-seconds", type=float, default=0.0)
    made.add_argument("--load-seconds", type=float, default=0.0, help="of a slow loader, at times")
    return made


def steps_told(options: argparse.Namespace, first: int, rank: int) -> Iterable[int]:
    """Return the steps to come, as the script shows them."""
    steps = range(first, options.steps)
    if options.tell == "bar" and rank == 0:
        from tqdm import tqdm  # type: ignore[import-untyped]

        shown: Iterable[int] = tqdm(steps, initial=first, total=options.steps, desc="train")
        return shown
    return steps


def await_data(options: argparse.Namespace, step: int) -> None:
    """Wait for a slow loader, in every fiftieth step."""
    if options.load_seconds and step % 50 == 25:
        time.sleep(options.load_seconds)


def finish(
    options: argparse.Namespace, step: int, loss: float, write: Callable[[BinaryIO], object]
) -> None:
    """Tell, save and evaluate, as rank 0 does it."""
    with options.losses.open("a") as file:
        file.write(f"{step}\t{loss.hex()}\n")
    if options.tell == "steps":
        print(f"step {step} loss {loss:.4f}", flush=True)
    if (step + 1) % options.checkpoint_every == 0:
        if options.pack_seconds:
            _pack(options.pack_seconds)
        _save(options.checkpoint, write, options.save_seconds)
    if options.evaluate_every and (step + 1) % options.evaluate_every == 0:
        time.sleep(options.evaluate_seconds)


def _save(path: Path, write: Callable[[BinaryIO], object], seconds: float) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    until = time.monotonic() + seconds
    with partial.open("wb") as file:
        while time.monotonic() < until:
            file.write(bytes(1 << 16))
            os.fsync(file.fileno())
            time.sleep(0.05)
            file.seek(0)
        write(file)
    partial.replace(path)


def _pack(seconds: float) -> None:
    """Copy a text again and again without giving the interpreter's lock back, as a pickler may."""
    text = "x" * (1 << 26)
    began = time.monotonic()
    text.encode()
    count = int(seconds / (time.monotonic() - began))
    collections.deque(map(str.encode, itertools.repeat(text, count)), maxlen=0)
