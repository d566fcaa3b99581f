"""Rank for recording what agents say: a few MiB of state, a snapshot and a step every 5 s."""

import sys
import time

import numpy as np

import everstep

STEP_S = float(sys.argv[1])


def main() -> None:
    """Make steps until killed."""
    state = {"params": np.zeros(1 << 18)}
    snapshots = everstep.snapshots(state)
    last = snapshots.restore()
    step = 0 if last is None else last + 1
    while True:
        time.sleep(STEP_S - time.time() % STEP_S)  # all ranks together
        state["params"] += 1.0
        snapshots.snapshot(step)
        everstep.step(step)
        step += 1


if __name__ == "__main__":
    main()
