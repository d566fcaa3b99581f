"""Rank of several benchmarks: steps of one length, and a snapshot after each; runs until killed.

It appends a line of JSON for each step: its number, when its snapshot began (CLOCK_MONOTONIC), the
seconds that it took, how many steps could not be saved so far, and the seconds of a ping-pong
between two processes after it, if that is asked for.
"""

import argparse
import contextlib
import ctypes
import hashlib
import itertools
import json
import mmap
import os
import socket
import time
from pathlib import Path

import everstep

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
# More than the caches of a core nearest to it: a step leaves little there of what was before it.
_BATCH = bytes(4 << 20)
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
_PATIENCE_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class PingPong:
    """Two processes, and a word of shared memory on which each wakes the other."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._word = ctypes.c_uint32.from_buffer(self._memory)
        self._address = ctypes.c_void_p(ctypes.addressof(self._word))
        self._parent = os.getpid()
        if not os.fork():
            self._answer()

    def play(self) -> float:
        """Return the seconds until the other process has been woken and has woken this one."""
        began = time.perf_counter()
        self._tell(1)
        self._until(0)
        return time.perf_counter() - began

    def _answer(self) -> None:
        while os.getppid() == self._parent:
            if self._until(1):
                self._tell(0)
        os._exit(0)

    def _tell(self, value: int) -> None:
        self._word.value = value
        _libc.syscall(_SYS_FUTEX, self._address, _FUTEX_WAKE, 1, None, None, 0)

    def _until(self, value: int) -> bool:
        other, limit = 1 - value, _Timespec(1, 0)
        while self._word.value != value:
            _libc.syscall(
                _SYS_FUTEX, self._address, _FUTEX_WAIT, other, ctypes.byref(limit), None, 0
            )
            if os.getppid() != self._parent and os.getpid() != self._parent:
                return False
        return True


def met(port: int, rank: int) -> socket.socket:
    """Return a connection with the other rank of two."""
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


def _compute(seconds: float) -> None:
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        hashlib.sha1(_BATCH, usedforsecurity=False)


def main() -> None:
    """Train until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True, help="of the state")
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--losses", type=Path, required=True, help="file of the lines")
    parser.add_argument("--computes", action="store_true", help="steps compute, and do not sleep")
    parser.add_argument("--ping-pong", action="store_true")
    parser.add_argument("--meet", type=int, help="port at which two ranks wait before each step")
    given = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    other = met(given.meet, rank) if given.meet else None
    ping_pong = PingPong() if given.ping_pong else None
    train = _compute if given.computes else time.sleep
    run = everstep.init()
    snapshots = run.snapshots({f"rank-{rank}/weights": bytearray(b"\1" * given.bytes)})
    last = snapshots.restore()
    path = given.losses if not (rank and other) else given.losses.with_name(f"steps-{rank}")
    with path.open("a", buffering=1, encoding="ascii") as told:
        for step in itertools.count(0 if last is None else last + 1):
            train(given.step_seconds)
            if other is not None:
                other.sendall(b".")
                if not other.recv(1):
                    return
            began, began_s = time.monotonic(), time.perf_counter()
            snapshots.snapshot(step)
            took_s = time.perf_counter() - began_s
            run.step(step)
            played_s = ping_pong.play() if ping_pong else 0.0
            print(json.dumps([step, began, took_s, run.unsaved_steps, played_s]), file=told)


if __name__ == "__main__":
    main()
