"""Counter growth: how much a counter grew, over restarts, resets, wraps and narrow registers."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep_common.judging.moment import Moment

_MINUTE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class CounterState:
    """State of a counter that one agent leaves to the next."""

    value: int
    boot_id: str
    boot_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of a counter since it was read before.

    ``seconds`` is 0 at the first reading of all. ``reset``: it began again from zero in between, so
    ``count`` is the least that it can have grown. ``saturated``: it stands at its largest value and
    cannot tell whether it grew.
    """

    count: int
    seconds: float
    reset: bool = False
    saturated: bool = False

    @property
    def per_second(self) -> float:
        """Return the mean rate; 0 where no time passed."""
        return self.count / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Register:
    """Kind of a counter: how wide it is, and how it behaves at its end.

    ``wraps``: goes on from zero after its largest value (Ethernet statistics of 32 bits); else it
    stays there until it is reset (the PortCounters of InfiniBand, 4, 8 and 16 bits wide).
    """

    bits: int = 64
    wraps: bool = False

    @property
    def largest(self) -> int:
        """Return the largest value that it can hold."""
        return (1 << self.bits) - 1


COUNTER_64 = Register()


class Counters:
    """The last value of every counter of a node, by name."""

    def __init__(self, remembered: Mapping[str, CounterState] | None = None) -> None:
        self._last = dict(remembered or {})

    def take(self, name: str, value: int, now: Moment, register: Register = COUNTER_64) -> Growth:
        """Take a reading and return what it means."""
        last = self._last.get(name)
        self._last[name] = CounterState(value, now.boot_id, now.boot_ns, now.wall_ns)
        saturated = not register.wraps and register.bits < 64 and value >= register.largest
        if last is None:
            return Growth(0, 0.0, saturated=saturated)
        seconds = _seconds(last, now)
        if value >= last.value:
            return Growth(value - last.value, seconds, saturated=saturated)
        if register.wraps and last.boot_id == now.boot_id and _has_wrapped(last, value, register):
            return Growth(value + register.largest + 1 - last.value, seconds)
        return Growth(value, seconds, reset=True, saturated=saturated)

    def forget(self, prefix: str) -> None:
        """Forget the counters of a device that is gone."""
        self._last = {name: s for name, s in self._last.items() if not name.startswith(prefix)}

    def remembered(self) -> Mapping[str, CounterState]:
        """Return what the next agent must know."""
        return dict(self._last)


def _seconds(last: CounterState, now: Moment) -> float:
    """Return the time between two readings; over a reboot only the wall clock can say it."""
    same_boot = last.boot_id == now.boot_id
    passed = now.boot_ns - last.boot_ns if same_boot else now.wall_ns - last.wall_ns
    return max(0, passed) / 1e9


def _has_wrapped(last: CounterState, value: int, register: Register) -> bool:
    """Return whether a smaller value is more likely a wrap than a reset.

    A counter that was in its upper quarter and is in its lower one has wrapped; a reset from there
    looks the same, and is rarer.
    """
    quarter = (register.largest + 1) // 4
    return last.value >= register.largest + 1 - quarter and value < quarter


class RateWindow:
    """Sum of what was counted within the newest stretch of time."""

    def __init__(self, window_ns: int = _MINUTE_NS) -> None:
        self._window_ns = window_ns
        self._grown: deque[tuple[int, int]] = deque()
        self._sum = 0

    def take(self, count: int, boot_ns: int) -> int:
        """Add growth that was seen now, and return the sum over the window."""
        if count:
            self._grown.append((boot_ns, count))
            self._sum += count
        while self._grown and self._grown[0][0] <= boot_ns - self._window_ns:
            self._sum -= self._grown.popleft()[1]
        return self._sum


class FlaggedWindows:
    """The newest looks at something, and in how many of them it was flagged."""

    def __init__(self, looks: int, flagged: Iterable[bool] = ()) -> None:
        self._looks: deque[bool] = deque(flagged, maxlen=looks)

    def take(self, flagged: bool) -> int:
        """Add a look, and return how many of the newest were flagged."""
        self._looks.append(flagged)
        return sum(self._looks)
