"""Rank of the cadence benchmark: saves its state when told a step, and answers with the seconds.

Argument: bytes of the state. A step that could not be saved is tried again: on a busy machine the
first slots may take longer than a step waits.
"""

import json
import sys
import time

import numpy as np

import everstep


def main(size_bytes: int) -> None:
    """Serve until standard input ends."""
    state = np.ones(size_bytes // 8)
    snapshots = everstep.snapshots({"w": state})
    snapshots.restore()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        saved, took_s = False, 0.0
        while not saved:
            began = time.perf_counter()
            saved = snapshots.snapshot(int(line))
            took_s = time.perf_counter() - began
        print(json.dumps(took_s), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
