"""Training script of the benchmark of a controller's cost: steps of one length, told by the SDK.

    hang_controller_rank.py FILE STEP_S

Rank 0 writes into FILE how many steps it has made.
"""

import sys
import time
from pathlib import Path

import everstep


def main(file: Path, step_s: float) -> None:
    """Train until killed."""
    run = everstep.init()
    began_s = time.monotonic()
    for step in range(1_000_000_000):
        time.sleep(max(0.0, began_s + (step + 1) * step_s - time.monotonic()))
        run.step(step)
        if run.rank == 0:
            file.write_text(str(step))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
