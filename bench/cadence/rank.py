"""Training script of the cadence benchmark: writes when each step ended and what it stalled."""

import argparse
import time
from pathlib import Path

import numpy as np

import everstep


def main(size_bytes: int, step_s: float, to: Path) -> None:
    """Train until killed."""
    run = everstep.init()
    state = np.ones(size_bytes // 8)
    snapshots = run.snapshots({f"rank-{run.rank}/w": state})
    last = snapshots.restore()
    first = 0 if last is None else last + 1
    with to.open("a", encoding="ascii", buffering=1) as file:
        for step in range(first, 1 << 40):
            time.sleep(step_s)
            began = time.monotonic()
            snapshots.snapshot(step)
            ended = time.monotonic()
            run.step(step)
            file.write(f"{step}\t{ended} {ended - began} {snapshots.unsaved_steps}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--losses", type=Path, required=True)
    given = parser.parse_args()
    main(given.size, given.step_seconds, given.losses)
