"""Minimum rate: below it a source is not waited for while there may be another one."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

_SECOND_NS = 1_000_000_000


class SlowSourceError(ConnectionError):
    """A source brings so little that another one should be asked first."""


class MinRateWindow:
    """Window in which the bytes that come are counted. Pure: the time is an argument."""

    def __init__(self, bytes_per_s_min: int, window_ns: int, now_ns: int) -> None:
        self._bytes_per_s_min = bytes_per_s_min
        self._window_ns = window_ns
        self._began_ns = now_ns
        self._came_bytes = 0

    def count_bytes(self, count: int, now_ns: int) -> bool:
        """Count bytes; False at the end of a window in which there were too few."""
        self._came_bytes += count
        passed_ns = now_ns - self._began_ns
        if passed_ns < self._window_ns:
            return True
        enough = self._came_bytes * _SECOND_NS >= self._bytes_per_s_min * passed_ns
        self._began_ns, self._came_bytes = now_ns, 0
        return enough


class RateWatch:
    """One transfer's, for the threads of all its streams together."""

    def __init__(self, min_rate: "MinRate") -> None:
        self._min_rate = min_rate
        self._window = MinRateWindow(
            min_rate.bytes_per_s_min, min_rate.window_ns, min_rate.now_ns()
        )
        self._lock = Lock()

    def count_bytes(self, count: int) -> None:
        """Count bytes. Raises SlowSourceError when too few came for too long."""
        with self._lock:
            if not self._window.count_bytes(count, self._min_rate.now_ns()):
                least = self._min_rate.bytes_per_s_min
                raise SlowSourceError(f"it brought less than {least} bytes/s for a while")


@dataclass(frozen=True, slots=True)
class MinRate:
    """The least rate of a transfer; 0 is none."""

    bytes_per_s_min: int
    window_ns: int
    now_ns: Callable[[], int]

    def start_watch(self) -> RateWatch:
        """Return what watches a transfer that begins now."""
        return RateWatch(self)
