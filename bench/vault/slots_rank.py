"""Rank of the slots benchmark: snapshots of a small state, and a futex ping-pong beside each.

Arguments: bytes of the state, seconds of a step, "sleeps" or "computes", a file. The file gets a
line of JSON for each step: when its snapshot began (CLOCK_MONOTONIC), the seconds that training
stood still for it, those of a ping-pong between two processes after it, and how many steps could
not be saved so far.
"""

import ctypes
import hashlib
import itertools
import json
import mmap
import os
import sys
import time

import everstep

_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
# More than the caches of a core nearest to it: a step leaves little there of what was before it.
_BATCH = bytes(4 << 20)
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
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


def _compute(seconds: float) -> None:
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        hashlib.sha1(_BATCH, usedforsecurity=False)


def main() -> None:
    """Train until killed."""
    size_bytes, step_s, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[4]
    train = {"sleeps": time.sleep, "computes": _compute}[sys.argv[3]]
    ping_pong = PingPong()
    state = {"weights": bytearray(size_bytes)}
    run = everstep.init()
    snapshots = run.snapshots(state)
    snapshots.restore()
    with open(path, "a", buffering=1, encoding="ascii") as told:
        for step in itertools.count(1):
            train(step_s)
            began, began_s = time.monotonic(), time.perf_counter()
            snapshots.snapshot(step)
            took_s = time.perf_counter() - began_s
            run.step(step)
            played_s = ping_pong.play()
            print(json.dumps([began, took_s, played_s, run.unsaved_steps]), file=told)


if __name__ == "__main__":
    main()
