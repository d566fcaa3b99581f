"""A node's boot clock on the controller's timeline: the offset of the smallest round trip."""

from collections import deque
from dataclasses import dataclass, field

# Two clocks drift apart by up to 50 ppm and more; an old sample is worth its round trip plus that.
_DRIFT_PPM = 50
_SAMPLES = 64
# Hello travels one way only, behind a handshake: nothing says how long ago its stamp was made.
_HELLO_UNCERTAINTY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClockEstimate:
    """Controller time minus boot time, and how far that may be off, in nanoseconds."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class _Sample:
    taken_ns: int
    offset_ns: int
    uncertainty_ns: int

    def uncertainty_at(self, now_ns: int) -> int:
        return self.uncertainty_ns + (now_ns - self.taken_ns) * _DRIFT_PPM // 1_000_000


@dataclass(slots=True)
class ClockMap:
    """What is known of one node's clock. A new boot starts anew: its clock does."""

    boot_id: str = ""
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def hello(self, boot_id: str, boot_ns: int, received_ns: int) -> None:
        """Take a stamp that came without a question; used until the first answer."""
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self._samples.clear()
        if not self._samples:
            self._samples.append(_Sample(received_ns, received_ns - boot_ns, _HELLO_UNCERTAINTY_NS))

    def reply(self, boot_id: str, boot_ns: int, sent_ns: int, received_ns: int) -> None:
        """Take the answer to a question; the node's clock was read somewhere in between."""
        if not received_ns - sent_ns >= 0:
            return
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self._samples.clear()
        half_ns = (received_ns - sent_ns + 1) // 2
        self._samples.append(_Sample(received_ns, sent_ns + half_ns - boot_ns, half_ns))

    def estimate(self, now_ns: int) -> ClockEstimate | None:
        """Return the best offset known, or None before anything is."""
        best = min(self._samples, key=lambda s: s.uncertainty_at(now_ns), default=None)
        if best is None:
            return None
        return ClockEstimate(best.offset_ns, best.uncertainty_at(now_ns))

    def to_controller_ns(self, boot_id: str, boot_ns: int, now_ns: int) -> int:
        """Return when something happened; never after ``now_ns``.

        Of a boot that was never measured only the time of arrival is known.
        """
        estimate = self.estimate(now_ns) if boot_id == self.boot_id else None
        return now_ns if estimate is None else min(boot_ns + estimate.offset_ns, now_ns)
