"""A training script for tests: every word of its state says which rank and step it belongs to.

All ranks take their steps together. Beside the file of losses each rank leaves one that says what
it restored, how many steps were not saved, and that it has trained to its end.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import everstep

_PATIENCE_S = 120.0


def word(rank: int, step: int) -> int:
    """Return what the state of a rank consists of after a step."""
    return (rank + 1) << 40 | step + 1


class Together:
    """Lets ranks wait for one another: files, so that no connection can break."""

    def __init__(self, losses: Path, rank: int, world_size: int) -> None:
        stem = losses.parent / f"at-{losses.stem}"
        self._own = stem.with_name(f"{stem.name}-{rank}")
        self._others = [stem.with_name(f"{stem.name}-{r}") for r in range(world_size) if r != rank]

    def reach(self, step: int) -> None:
        """Return when all ranks are at this step."""
        self._own.write_bytes(b"." * (step + 1))
        end = time.monotonic() + _PATIENCE_S
        for path in self._others:
            while not path.exists() or path.stat().st_size <= step:
                assert time.monotonic() < end, f"{path.name} does not come to step {step}"
                time.sleep(0.002)


def main(arguments: argparse.Namespace) -> int:
    run = everstep.init()
    state = np.zeros(arguments.size // 8, dtype=np.int64)
    snapshots = run.snapshots({f"rank-{run.rank}/w": state})
    restored = snapshots.restore()
    said = {"restored": restored, "unsaved": 0, "whole": True, "ended": False}
    path = arguments.losses.parent / f"said-{arguments.losses.stem}-{run.rank}.json"
    if restored is not None and not (state == word(run.rank, restored)).all():
        path.write_text(json.dumps(said | {"whole": False}))
        return 9
    path.write_text(json.dumps(said))
    together = Together(arguments.losses, run.rank, run.world_size)
    with arguments.losses.open("a", buffering=1) as losses:
        for step in range(0 if restored is None else restored + 1, arguments.steps):
            due = time.monotonic() + arguments.step_seconds
            together.reach(step)
            state[:] = word(run.rank, step)
            if run.rank == 0:
                losses.write(f"{step}\t{word(0, step)}\n")
            snapshots.snapshot(step)
            run.step(step)
            time.sleep(max(0.0, due - time.monotonic()))
    snapshots.join()
    path.write_text(json.dumps(said | {"unsaved": run.unsaved_steps, "ended": True}))
    return int(arguments.exit_code)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1 << 16)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--losses", type=Path, required=True)
    sys.exit(main(parser.parse_args()))
