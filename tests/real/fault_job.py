"""A training script for tests of faults: its losses are equal to the bit on any number of ranks.

Each generation writes its losses to a file of its own, each rank its process id and the port of
its rendezvous. Ranks wait where the file ``hold`` says: at "start", "rendezvous", "restore" or
"warm-up"; and before the step after the one that the file ``gate`` names, if there is one.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

import everstep

# The star of TCP connections of the example.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from train_numpy import SHARDS, Group

_WIDTH = 512


def hold(folder: Path, point: str) -> None:
    """Wait at this point, as long as a test says so."""
    told, here = folder / "hold", folder / f"held-{os.environ.get('EVERSTEP_GENERATION', '0')}"
    while told.exists() and told.read_text(encoding="ascii") == point:
        here.touch()
        time.sleep(0.01)


def pass_gate(folder: Path, step: int) -> None:
    """Wait until a test lets the ranks take this step."""
    told = folder / "gate"
    while told.exists() and step > int(told.read_text(encoding="ascii")):
        time.sleep(0.01)


def main(options: argparse.Namespace) -> None:
    folder = Path(os.environ["LOSSES"])
    told = f"{os.getpid()} {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    names = (os.environ.get(name, "0") for name in ("EVERSTEP_GENERATION", "RANK"))
    (folder / "-".join(["rank", *names])).write_text(told, encoding="ascii")
    hold(folder, "start")
    run = everstep.init()
    hold(folder, "rendezvous")
    group = Group(run.rank, run.world_size, run.generation)
    share = SHARDS // run.world_size
    own = range(run.rank * share, (run.rank + 1) * share)
    start = np.arange(SHARDS * _WIDTH, dtype=np.float64) / (SHARDS * _WIDTH)
    shards = start.reshape(SHARDS, _WIDTH)[own]
    snapshots = run.snapshots({f"shard-{k:02}": shards[i] for i, k in enumerate(own)})
    hold(folder, "restore")
    restored = snapshots.restore()
    hold(folder, "warm-up")
    with (folder / f"{run.generation}.tsv").open("a", buffering=1) as losses:
        for step in range(0 if restored is None else restored + 1, options.steps):
            pass_gate(folder, step)
            total = group.sum_rows(shards)
            # The logistic map: a bit that is wrong anywhere shows everywhere after some steps.
            mixed = (shards + total / SHARDS + 0.01 * step) % 1.0
            shards[:] = 3.9 * mixed * (1.0 - mixed)
            if run.rank == 0:
                losses.write(f"{step}\t{float(total.sum()).hex()}\n")
            snapshots.snapshot(step)
            run.step(step)
            time.sleep(options.step_seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    main(parser.parse_args())
