"""Rank of the attack benchmark: a step of a few milliseconds, and a snapshot after each.

Arguments: bytes of the state, a file. The file gets a line of JSON for each step: when its snapshot
began (CLOCK_MONOTONIC), the seconds that it took, and how many steps could not be saved so far.
"""

import itertools
import json
import sys
import time

import everstep

STEP_S = 0.02


def main() -> None:
    """Train until killed."""
    size_bytes, path = int(sys.argv[1]), sys.argv[2]
    state = {"weights": bytearray(size_bytes)}
    run = everstep.init()
    snapshots = run.snapshots(state)
    snapshots.restore()
    with open(path, "a", buffering=1, encoding="ascii") as told:
        for step in itertools.count(1):
            time.sleep(STEP_S)
            began = time.monotonic()
            snapshots.snapshot(step)
            took_s = time.monotonic() - began
            run.step(step)
            print(json.dumps([began, took_s, run.unsaved_steps]), file=told)


if __name__ == "__main__":
    main()
