"""Node clocks, read in one place: the boot clock for intervals, the wall clock for people."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from everstep_common.stamp import Stamp as Stamp

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


StampClock = Callable[[], Stamp]


def boot_ns() -> int:
    """Return CLOCK_BOOTTIME in nanoseconds: it counts through suspend and is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def stamp_clock(boot_id_path: Path = _BOOT_ID) -> StampClock:
    """Return a clock that stamps with this boot's id. Raises OSError when the id cannot be read."""
    boot_id = boot_id_path.read_text(encoding="ascii").strip()
    return lambda: Stamp(boot_id, boot_ns(), time.time_ns())


class Clock(Protocol):
    """Monotonic clock in seconds, by which waits for an agent are measured, and slept."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return that much later."""
        ...
