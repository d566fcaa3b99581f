"""Token bucket: a rate, how much of it is left, and how long to wait for more."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate for long, and burst after a pause; a rate of 0 a second is no limit."""

    per_s: float
    burst: float


class TokenBucket:
    """What is left of a rate: bytes, calls, or seconds of work. Pure."""

    def __init__(self, rate: Rate, now_s: float) -> None:
        self._rate = rate
        self._left = rate.burst
        self._at_s = now_s

    def spend_one(self, now_s: float) -> bool:
        """Take one; False, and nothing taken, where none is left."""
        self._refill(now_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def overdraw(self, now_s: float, count: float) -> float:
        """Take so many, left or not; return how many seconds to wait for what was not."""
        self._refill(now_s)
        self._left -= count
        return max(0.0, -self._left / self._rate.per_s)

    def is_full(self, now_s: float) -> bool:
        """Return whether nothing was taken that is not back."""
        self._refill(now_s)
        return self._left >= self._rate.burst

    def _refill(self, now_s: float) -> None:
        back = max(0.0, now_s - self._at_s) * self._rate.per_s
        self._left, self._at_s = min(self._rate.burst, self._left + back), now_s
