"""A rank of a job that sums over sockets alone, of which rank 1 holds the others back in a way."""

import collections
import ctypes
import itertools
import socket
import subprocess
import sys
import time

_FOR_EVER_S = 600
_PEERS = 2
# Copied again and again: 64 MiB, which the kernel gives anew each time.
_TEXT_BYTES = 1 << 26


def main(rank: int, port: int, how: str) -> None:
    """Tell once that the others wait, and hang."""
    peers = _listen(port) if rank == 0 else [_connect(port)]
    for peer in peers:
        peer.sendall(b"ready")
    print("steps", flush=True)
    if rank == 1:
        # The others wait for a while in any job.
        time.sleep(0.5)
        _hold_back(how)
    for peer in peers:
        while peer.recv(64):
            pass


def _listen(port: int) -> list[socket.socket]:
    with socket.create_server(("127.0.0.1", port)) as server:
        return [server.accept()[0] for _ in range(_PEERS)]


def _connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=_FOR_EVER_S)
        except ConnectionRefusedError:
            time.sleep(0.05)


def _hold_back(how: str) -> None:
    if how == "sleep":
        ctypes.PyDLL(None).sleep(_FOR_EVER_S)
    elif how == "loop":
        collections.deque(itertools.repeat(0), maxlen=0)
    elif how == "build":
        copies = map(str.encode, itertools.repeat("x" * _TEXT_BYTES))
        collections.deque(copies, maxlen=0)
    elif how == "evaluate":
        time.sleep(_FOR_EVER_S)
    elif how == "compute":
        while True:
            sum(range(100))
    elif how == "child":
        subprocess.run(["sleep", str(_FOR_EVER_S)], check=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
