"""Memory copies at the speed of memcpy, with as many threads as the process may use."""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

# ctypes.memmove releases the GIL, so threads share a large copy: 512 MiB into mapped memory went at
# 12.4 GB/s with one and 23 GB/s with two on two cores. Four come near a socket's bandwidth limit.
THREADS_MAX = 4
# Below this a copy takes under 3 ms, and handing it to threads costs more than it gains.
THREADED_BYTES = 32 * 1024 * 1024
# From some size on glibc writes past the caches, which saves a third of the traffic: 2 GiB took
# 0.18 s in pieces of 256 MiB and 0.31 s in pieces of 64 MiB. Where that begins is up to the CPU
# (three quarters of a core's share of the last cache), so pieces are as large as still balances.
_PIECE_BYTES = 256 * 1024 * 1024
_PIECE_BYTES_MIN = 16 * 1024 * 1024
_PAGE_BYTES = 4096

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Copy:
    """``size_bytes`` from one address to another."""

    to_address: int
    from_address: int
    size_bytes: int


class Work:
    """Queue of calls that any number of threads take, one by one, until none is left."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = len(calls)
        self._left = deque(calls)
        self._lock = threading.Lock()
        self._unfinished = len(calls)
        self._done = threading.Event()
        self._error: BaseException | None = None
        if not calls:
            self._done.set()

    def take_part(self) -> None:
        """Return when nobody needs to begin anything any more; some may not have finished.

        Raises what a call raised, or a handler of signals between two of them: the work ends then.
        """
        try:
            while (call := self._next()) is not None:
                call()
                with self._lock:
                    self._unfinished -= 1
                    if not self._unfinished:
                        self._done.set()
        except BaseException as error:
            self._error = error
            self.stop()
            self._done.set()
            raise

    def stop(self) -> None:
        """Let nobody begin another call; `wait` never returns then, for it is not all done."""
        self._left.clear()

    def join(self) -> None:
        """Return when all is done, or will not be."""
        self._done.wait()

    def wait(self) -> None:
        """Return when all is done. Raises what anybody who took part has raised."""
        self.join()
        if self._error is not None:
            raise self._error

    def _next(self) -> Call | None:
        try:
            return self._left.popleft()
        except IndexError:
            return None


class Copier:
    """Copier of memory: shares work among threads that live for that work only.

    So there is no pool that a forked child would inherit dead, or that the interpreter's end would
    wait for; to start a thread takes 0.1 ms.
    """

    def __init__(self, threads: int) -> None:
        self.threads = max(1, min(threads, THREADS_MAX))

    def copy(self, copies: Sequence[Copy]) -> None:
        """Return when every byte is copied."""
        if _are_few_bytes(copies):
            _Moving(tuple(copies))()
        else:
            self.share(self.work(copies))

    def work(self, copies: Sequence[Copy]) -> Work:
        """Return copies as work that is still to be done: a few calls, or one for a few bytes."""
        if _are_few_bytes(copies):
            return Work([_Moving(tuple(copies))])
        return Work([_Moving((piece,)) for piece in pieces(copies, self.threads)])

    def share(self, work: Work) -> None:
        """Do the work with all threads, this one among them. Raises what a call raised."""
        helpers: list[threading.Thread] = []
        try:
            for _ in range(min(self.threads, work.calls) - 1):
                helpers += _helper(work)
            work.take_part()
            work.wait()
        except BaseException:
            # A handler of signals has ended it: whose memory it is may be somebody else's soon.
            work.stop()
            for helper in helpers:
                helper.join()
            raise

    @classmethod
    def for_node(cls, processes: int) -> "Copier":
        """Return a copier that takes its share of the processors, with this many on the node."""
        return cls(len(os.sched_getaffinity(0)) // max(1, processes))


def _helper(work: Work) -> Sequence[threading.Thread]:
    """Return a thread that takes part; none where no more can be had: a limit, or the end."""

    def help_out() -> None:
        with suppress(BaseException):  # `wait` raises it, where it is waited for
            work.take_part()

    thread = threading.Thread(target=help_out, name="everstep-copy", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return ()
    return (thread,)


def _are_few_bytes(copies: Sequence[Copy]) -> bool:
    return sum([copy.size_bytes for copy in copies]) < THREADED_BYTES


@dataclass(frozen=True, slots=True)
class _Moving:
    copies: tuple[Copy, ...]

    def __call__(self) -> None:
        for copy in self.copies:
            ctypes.memmove(copy.to_address, copy.from_address, copy.size_bytes)


def pieces(copies: Sequence[Copy], threads: int) -> list[Copy]:
    """Cut what is larger than a thread's share; largest first, so that the small ones balance."""
    share = sum(copy.size_bytes for copy in copies) // threads
    share = max(_PIECE_BYTES_MIN, -(-share // _PAGE_BYTES) * _PAGE_BYTES)
    limit = min(_PIECE_BYTES, share)
    cut = [
        Copy(
            copy.to_address + at,
            copy.from_address + at,
            min(limit, copy.size_bytes - at),
        )
        for copy in copies
        for at in range(0, copy.size_bytes, limit)
    ]
    return sorted(cut, key=lambda piece: piece.size_bytes, reverse=True)
