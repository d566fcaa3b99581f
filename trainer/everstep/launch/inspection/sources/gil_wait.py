"""GIL wait: whether the watch thread of a rank waits for the GIL, as /proc shows; it asks nobody.

A thread of CPython that waits for the GIL wakes every 5 ms to ask for it (sys.setswitchinterval),
so it leaves a processor many times a second; the watch that goes on does so a few times. A thread
that gets no processor does not wake at all, so a busy node looks different.
"""

import os
from dataclasses import dataclass
from pathlib import Path

# 20 to 200 were seen while the GIL was held, under 12 times as much load as processors; of a watch
# beside a main thread that computes in Python, 16.
_WAKES_PER_S = 24
# A shorter time between two looks has too few of them in it.
LOOKS_S = 0.25
# A watch that is not busy is heard of every 2 s at the latest. One that was not for the first of
# these times is looked at; a word of it after the second is late in any case.
UNHEARD_NS = 10**9
_SURE_NS = 2_500_000_000
# futex(2) by machine; in "running", the thread had just woken.
_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine, "")
_RUNNING = "running"


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """The watch thread of a rank at one moment."""

    at_ns: int
    # How often it has left a processor by itself, to wait.
    waits: int
    # The number of the system call in which it is, or "running".
    syscall: str


def thread_look(pid: int, thread: int, at_ns: int, proc: Path = Path("/proc")) -> ThreadLook | None:
    """Look once at a thread of a process; None where it is none, or may not be read."""
    folder = proc / str(pid) / "task" / str(thread)
    try:
        status = (folder / "status").read_text(errors="replace")
        words = (folder / "syscall").read_text(errors="replace").split()
    except OSError:
        return None
    told = [line.split() for line in status.splitlines() if line.startswith("voluntary_ctxt")]
    return ThreadLook(at_ns, int(told[0][1]), words[0]) if told and words else None


def waits_for_gil(first: ThreadLook, second: ThreadLook, futex: str = _FUTEX) -> bool | None:
    """Return whether the thread waited for the GIL between two looks; None: too short to tell.

    ``futex`` is the number of that system call on this machine; "": not known.
    """
    passed_s = (second.at_ns - first.at_ns) / 1e9
    if not futex or passed_s < LOOKS_S:
        return None
    in_futex = all(one.syscall in (futex, _RUNNING) for one in (first, second))
    return in_futex and second.waits - first.waits >= _WAKES_PER_S * passed_s


class GilWaits:
    """Which ranks' watches wait for the GIL, of those of which a launcher hears nothing."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        # Process and thread of each rank of which nothing is heard, and the first look since then.
        self._unheard: dict[int, tuple[tuple[int, int], ThreadLook]] = {}

    def forget(self) -> None:
        """Other processes begin."""
        self._unheard.clear()

    def observe(self, rank: int, thread: tuple[int, int], heard_ns: int, now_ns: int) -> None:
        """Look at a rank if its watch has not been heard of; ``thread``: of which process.

        It is asked once a second; ``heard_ns`` is 0 where there is no watch.
        """
        known = self._unheard.get(rank)
        if not heard_ns or not thread[1] or now_ns - heard_ns < UNHEARD_NS:
            self._unheard.pop(rank, None)
        elif known is None or known[0] != thread:
            look = thread_look(*thread, now_ns, self._proc)
            if look is not None:
                self._unheard[rank] = (thread, look)

    def seen(self, rank: int, heard_ns: int, now_ns: int) -> bool:
        """Return whether it was seen that a rank waits for the GIL, up to now."""
        known = self._unheard.get(rank)
        if known is None or now_ns - heard_ns < _SURE_NS:
            return False
        thread, first = known
        look = thread_look(*thread, now_ns, self._proc)
        return look is not None and waits_for_gil(first, look) is True
