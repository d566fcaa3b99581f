"""A job that fails as it is told: ``failing_script.py MODE --losses FILE``."""

import math
import os
import sys

import numpy as np

import everstep

_STEPS = 20
_BAD_DATA = 12


def main() -> None:
    mode, losses = sys.argv[1], sys.argv[-1]
    if mode == "refuses":
        raise SystemExit("no configuration for this cluster")
    skip = 1 if mode == "bad-data" else 0
    run = everstep.init(on_nan="raise" if mode == "nan" else "rollback", skip_batches=skip)
    state = np.zeros(1000)
    snapshots = run.snapshots({"state": state})
    last = snapshots.restore()
    with open(losses, "a", encoding="ascii") as told:
        for step in range(0 if last is None else last + 1, _STEPS):
            batch = run.batch_index(step)
            if mode == "exception" and step == _BAD_DATA:
                raise ValueError(f"bad batch {batch}")
            if mode == "device-memory" and step == _BAD_DATA:
                # As a shell returns it whose program was killed after these words.
                print(
                    "RuntimeError: CUDA out of memory. Tried 9.7 GiB", file=sys.stderr, flush=True
                )
                os._exit(137)
            bad = mode in ("bad-data", "nan", "goes-back") and batch == _BAD_DATA
            state += batch
            if bad:
                state[0] = math.nan
            run.report(step, loss=state.mean())
            snapshots.snapshot(step)
            run.step(step)
            told.write(f"{step}\t{batch}:{state[0]:g}\n")
            told.flush()


if __name__ == "__main__":
    main()
