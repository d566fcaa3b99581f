"""Clock map: a node's clocks on the controller's timeline, by the smallest round trip."""

from collections import deque
from dataclasses import dataclass, field

from everstep_common.judging.moment import Moment

# Two clocks drift apart by up to 50 ppm and more; an old sample is worth its round trip plus that.
_DRIFT_PPM = 50
_SAMPLES = 64
# Hello travels one way only, behind a handshake: nothing says how long ago its stamp was made.
_HELLO_UNCERTAINTY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ClockEstimate:
    """Offset between two clocks, and its uncertainty, in nanoseconds.

    Of a boot clock: controller time minus boot time. Of a wall clock: that minus controller time.
    """

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
    """Offsets of one node's clocks. A new boot starts anew: its boot clock does."""

    boot_id: str = ""
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    # The sample that says most; all of them age alike, so that it stays the best until it leaves.
    _best: _Sample | None = None
    # Wall clock minus boot clock, as the node read them together the last time.
    _wall_ns: int = 0

    def enter_hello(self, moment: Moment, received_ns: int) -> None:
        """Enter a stamp that came without a question; used until the first answer."""
        self._enter_moment(moment)
        if not self._samples:
            offset_ns = received_ns - moment.boot_ns
            self._add(_Sample(received_ns, offset_ns, _HELLO_UNCERTAINTY_NS))

    def enter_reply(self, moment: Moment, sent_ns: int, received_ns: int) -> None:
        """Enter the answer to a question; the node's clocks were read somewhere in between."""
        if not received_ns - sent_ns >= 0:
            return
        self._enter_moment(moment)
        half_ns = (received_ns - sent_ns + 1) // 2
        self._add(_Sample(received_ns, sent_ns + half_ns - moment.boot_ns, half_ns))

    def estimate(self, now_ns: int) -> ClockEstimate | None:
        """Return the best offset known of the boot clock, or None before anything is."""
        best = self._best
        return None if best is None else ClockEstimate(best.offset_ns, best.uncertainty_at(now_ns))

    def wall_offset(self, now_ns: int) -> ClockEstimate | None:
        """Return the offset of the node's wall clock as of its newest stamp; None without one."""
        known = self.estimate(now_ns)
        if known is None:
            return None
        return ClockEstimate(self._wall_ns - known.offset_ns, known.uncertainty_ns)

    def shift(self, forward_ns: int) -> None:
        """Have all offsets hold on a timeline that has gone forward."""
        known = [
            _Sample(s.taken_ns + forward_ns, s.offset_ns + forward_ns, s.uncertainty_ns)
            for s in self._samples
        ]
        self._samples.clear()
        self._best = None
        for sample in known:
            self._add(sample)

    def _enter_moment(self, moment: Moment) -> None:
        if moment.boot_id != self.boot_id:
            self.boot_id = moment.boot_id
            self._samples.clear()
            self._best = None
        self._wall_ns = moment.wall_ns - moment.boot_ns

    def _add(self, sample: _Sample) -> None:
        leaves = self._samples[0] if len(self._samples) == _SAMPLES else None
        self._samples.append(sample)
        if self._best is None or leaves is self._best:
            self._best = min(self._samples, key=lambda s: s.uncertainty_at(sample.taken_ns))
        elif sample.uncertainty_ns <= self._best.uncertainty_at(sample.taken_ns):
            self._best = sample

    def seen_ns(self, moment: Moment, now_ns: int) -> int:
        """Return when something was seen, at the latest; of an earlier boot by the wall clock, too.

        It was before this boot began. Whether a wall clock was right then nobody knows: it only
        makes evidence older.
        """
        known = self.estimate(now_ns)
        if known is None or moment.boot_id == self.boot_id:
            return self.to_controller_ns(moment.boot_id, moment.boot_ns, now_ns)
        by_wall_ns = moment.wall_ns - self._wall_ns + known.offset_ns
        return max(0, min(now_ns, known.offset_ns, by_wall_ns))

    def to_controller_ns(self, boot_id: str, boot_ns: int, now_ns: int) -> int:
        """Return when something happened; never after ``now_ns``.

        Of a boot that was never measured only the time of arrival is known.
        """
        estimate = self.estimate(now_ns) if boot_id == self.boot_id else None
        return now_ns if estimate is None else min(boot_ns + estimate.offset_ns, now_ns)
