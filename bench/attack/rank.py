"""Rank of the attack benchmark: a step of a few milliseconds, and a snapshot after each.

Arguments: bytes of the state, a file; for a job of two ranks a port, where each waits for the other
before a step. The file gets a line of JSON for each step of rank 0: when its snapshot began
(CLOCK_MONOTONIC), the seconds that it took, and how many steps could not be saved so far.
"""

import contextlib
import itertools
import json
import os
import socket
import sys
import time
from pathlib import Path

import everstep

STEP_S = 0.02
_PATIENCE_S = 60.0


def connected(port: int, rank: int) -> socket.socket:
    """Return a connection with the other rank."""
    address = ("127.0.0.1", port)
    if not rank:
        with socket.create_server(address) as listener:
            listener.settimeout(_PATIENCE_S)
            made = listener.accept()[0]
            made.settimeout(None)
            return made
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        with contextlib.suppress(ConnectionError):
            return socket.create_connection(address)
        time.sleep(0.05)
    raise SystemExit("the other rank does not come")


def main() -> None:
    """Train until killed."""
    size_bytes, path = int(sys.argv[1]), Path(sys.argv[2])
    rank = int(os.environ.get("RANK", "0"))
    other = connected(int(sys.argv[3]), rank) if len(sys.argv) > 3 else None
    state = {"weights": bytearray(size_bytes)}
    run = everstep.init()
    snapshots = run.snapshots(state)
    snapshots.restore()
    path = path if not rank else path.with_name(f"{path.name}-{rank}")
    with open(path, "a", buffering=1, encoding="ascii") as told:
        for step in itertools.count(1):
            time.sleep(STEP_S)
            if other is not None:
                other.sendall(b".")
                if not other.recv(1):
                    return
            began = time.monotonic()
            snapshots.snapshot(step)
            took_s = time.monotonic() - began
            run.step(step)
            print(json.dumps([began, took_s, run.unsaved_steps]), file=told)


if __name__ == "__main__":
    main()
