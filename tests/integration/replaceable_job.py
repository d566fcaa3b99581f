"""A training script for tests: a model that is equal in all ranks, with a private part in each.

Each rank of a generation leaves a file that says what it restored, and whose private part.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import everstep

_PATIENCE_S = 300.0
# More arrays than shares, so that each rank's share is more than none.
_WEIGHTS = 32


class Model:
    """Weights that tell the step, in all ranks alike, and a word that tells the rank."""

    def __init__(self, rank: int) -> None:
        self.owner = rank
        self.weights = {f"w{index}": np.zeros(64) for index in range(_WEIGHTS)}

    def train(self, step: int, rank: int) -> None:
        """Do a step."""
        self.owner = rank
        for weight in self.weights.values():
            weight[:] = step + 1

    def is_after(self, step: int) -> bool:
        """Return whether every weight is what it was after this step."""
        return all(bool((weight == step + 1).all()) for weight in self.weights.values())

    def state_dict(self) -> Mapping[str, object]:
        """Return the state."""
        return {"owner": self.owner, **self.weights}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Take the state; the weights are filled already."""
        assert isinstance(state["owner"], int)
        self.owner = state["owner"]


class Together:
    """Lets ranks take their steps together, through files: rank 0 looks for all others."""

    def __init__(self, losses: Path, rank: int, world_size: int) -> None:
        stem = f"at-{losses.stem}"
        paths = [losses.parent / f"{stem}-{one}" for one in range(world_size)]
        self._own, self._go = paths[rank], losses.parent / f"{stem}-go"
        self._others = paths[1:] if rank == 0 else [self._go]
        self._leads = rank == 0

    def reach(self, step: int) -> None:
        """Return when all ranks are at this step."""
        self._own.write_bytes(b"." * (step + 1))
        end = time.monotonic() + _PATIENCE_S
        for path in self._others:
            while not path.exists() or path.stat().st_size <= step:
                assert time.monotonic() < end, f"{path.name} does not come to step {step}"
                time.sleep(0.02)
        if self._leads:
            self._go.write_bytes(b"." * (step + 1))


def main(losses: Path) -> int:
    """Train until the end of the world."""
    run = everstep.init()
    model = Model(-1)
    snapshots = run.snapshots({"model": model}, equal=["model"], replaceable=["model", "random"])
    restored = snapshots.restore()
    whole = restored is None or model.is_after(restored)
    said = {"restored": restored, "whole": whole, "owner": model.owner}
    (losses.parent / f"said-{losses.stem}-{run.rank}.json").write_text(json.dumps(said))
    together = Together(losses, run.rank, run.world_size)
    step = 0 if restored is None else restored + 1
    while True:
        together.reach(step)
        model.train(step, run.rank)
        snapshots.snapshot(step)
        run.step(step)
        step += 1
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", type=Path, required=True)
    sys.exit(main(parser.parse_args().losses))
