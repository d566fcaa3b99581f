"""Job with the SDK whose every restore is proven: what each rank was given is compared afterwards.

It is train_numpy.py, whose losses and shards are equal to the bit on any number of processes. A
process notes the step it restored with a digest of every shard; a run on its own, without
Everstep's launcher, notes the digests of all steps: the reference.
"""

import argparse
import os
import time
import zlib
from pathlib import Path

import numpy as np
from train_numpy import (
    BATCH_SIZE,
    LEARNING_RATE,
    MOMENTUM,
    SHARDS,
    Array,
    Group,
    Network,
    batch,
)

import everstep


def digests(shards: Array) -> str:
    return ",".join(f"{zlib.crc32(shard.tobytes()):08x}" for shard in shards)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--step-seconds-min", type=float, default=0.0)
    parser.add_argument("--losses", type=Path, required=True)
    parser.add_argument("--digests", type=Path, help="note those of every step here")
    parser.add_argument("--restores", type=Path, help="note those of every restore here")
    parser.add_argument("--overlap", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    run = everstep.init()
    data = np.load(Path(__file__).with_name("digits.npz"))
    images, labels = data["images"] / 16.0, data["labels"]
    network = Network(options.hidden)
    group = Group(run.rank, run.world_size, run.generation)
    share = SHARDS // run.world_size
    own = range(run.rank * share, (run.rank + 1) * share)
    parameters = network.initial(options.seed).reshape(SHARDS, -1)
    shards = np.stack([parameters[own], np.zeros_like(parameters[own])], axis=1)
    named = {f"shard-{k:02}": shards[i] for i, k in enumerate(own)}
    snapshots = run.snapshots(named, overlap=options.overlap)
    restored = snapshots.restore()
    if restored is not None and options.restores:
        with options.restores.open("a") as file:
            file.write(f"{run.generation} {run.rank} {restored} {own.start} {digests(shards)}\n")
    parameters = group.all_gather(shards[:, 0].copy()).reshape(SHARDS, -1)
    gradients = np.zeros((share, parameters.size + 1))
    for step in range(0 if restored is None else restored + 1, options.steps):
        due = time.monotonic() + options.step_seconds_min
        for row, picked in zip(gradients, batch(options.seed, step)[own], strict=True):
            row[-1] = network.gradient(parameters.ravel(), images[picked], labels[picked], row)
        total = group.sum_rows(gradients) / BATCH_SIZE
        if options.overlap:
            snapshots.settle()  # the state changes from here on
        shards[:, 1] = MOMENTUM * shards[:, 1] + total[:-1].reshape(SHARDS, -1)[own]
        shards[:, 0] -= LEARNING_RATE * shards[:, 1]
        parameters = group.all_gather(shards[:, 0].copy()).reshape(SHARDS, -1)
        note(options, run.rank, step, float(total[-1]), shards)
        snapshots.snapshot(step)
        run.step(step)
        time.sleep(max(0.0, due - time.monotonic()))


def note(options: argparse.Namespace, rank: int, step: int, loss: float, shards: Array) -> None:
    """Write down what a step came to, before its snapshot."""
    if rank != 0:
        return
    with options.losses.open("a") as file:
        file.write(f"{step}\t{loss.hex()}\n")
    if options.digests:
        with options.digests.open("a") as file:
            file.write(f"{step} {digests(shards)}\n")


if __name__ == "__main__":
    os.umask(0o022)
    main()
