"""Rank of a vault benchmark: saves a state in arrays whose pages are present, or restores it.

Arguments: bytes, tensors. "save STEP", "restore", "slots" and "memcpy" are answered with seconds.
"""

import mmap
import sys
import time
from ctypes import addressof, c_ubyte, memmove

from harness.talk import serve

import everstep

_MARK = 251  # a prime: neighbouring arrays differ


class Rank:
    """The state, a copy of it in shared memory to measure memcpy with, and the SDK."""

    def __init__(self, size_bytes: int, count: int) -> None:
        self._each = size_bytes // count
        self._arrays = [bytearray(self._each) for _ in range(count)]
        named = {f"layer-{number}": array for number, array in enumerate(self._arrays)}
        self._snapshots = everstep.init().snapshots(named)
        self._source: mmap.mmap | None = None

    def fill(self) -> None:
        """Write every page, each array with a byte of its own."""
        for number, array in enumerate(self._arrays):
            array[:] = bytes([number % _MARK]) * self._each

    def filled(self) -> bool:
        """Return whether that is what the arrays hold, by their ends."""
        return all(
            array[0] == array[-1] == number % _MARK for number, array in enumerate(self._arrays)
        )

    def save(self, step: int) -> float:
        """Return how long the snapshot took."""
        began = time.perf_counter()
        saved = self._snapshots.snapshot(step)
        took_s = time.perf_counter() - began
        if not saved:
            raise SystemExit(f"step {step} was not saved")
        return took_s

    def save_at_last(self, step: int) -> float:
        """Return how long it took to save a step, tried again until it is.

        On a busy machine the first slots may take longer than a step waits.
        """
        saved, took_s = False, 0.0
        while not saved:
            began = time.perf_counter()
            saved = self._snapshots.snapshot(step)
            took_s = time.perf_counter() - began
        return took_s

    def restore(self) -> float:
        """Return how long the restore took, into arrays that held something else."""
        for array in self._arrays:
            array[:] = b"\xff" * self._each
        began = time.perf_counter()
        step = self._snapshots.restore()
        took_s = time.perf_counter() - began
        if step is None or not self.filled():
            raise SystemExit("what was restored is not what was saved")
        return took_s

    def slots(self) -> float:
        """Return how long it takes until the slots are there that a restore has asked for."""
        began = time.perf_counter()
        self._snapshots._reservation.wait()
        return time.perf_counter() - began

    def memcpy(self) -> float:
        """Return how long one thread takes to copy as much from shared memory into the arrays."""
        size = self._each * len(self._arrays)
        if self._source is None:
            self._source = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        begin = addressof(c_ubyte.from_buffer(self._source))
        took_s = 0.0
        for number, array in enumerate(self._arrays):
            to = addressof(c_ubyte.from_buffer(array))
            began = time.perf_counter()
            memmove(to, begin + number * self._each, self._each)
            took_s += time.perf_counter() - began
        return took_s

    def take(self, words: list[str]) -> float:
        """Do one command."""
        match words:
            case ["save", step]:
                return self.save(int(step))
            case ["save_at_last", step]:
                return self.save_at_last(int(step))
            case ["restore"]:
                return self.restore()
            case ["slots"]:
                return self.slots()
            case ["memcpy"]:
                return self.memcpy()
            case _:
                raise ValueError(f"not a command: {words}")


def main(size_bytes: int, count: int) -> None:
    """Serve until standard input ends."""
    rank = Rank(size_bytes, count)
    rank.fill()
    serve(rank.take)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
