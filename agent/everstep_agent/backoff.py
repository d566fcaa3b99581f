"""Retry backoff: random delays between attempts, so that a fleet does not return in step."""

import random

# Half of the time that a controller listens which rebuilds its journal: it hears every agent.
_REFUSED_S = (3.0, 12.0)

# A controller that was there a moment ago is being restarted, most likely: until so many seconds
# have been waited, no wait for it is longer than this.
_RESTART_S = 10.0
_RESTART_WAIT_MAX_S = 0.5


class Backoff:
    """Delays in seconds, each drawn between nothing and a limit that doubles up to ``cap_s``."""

    def __init__(self, rng: random.Random, first_s: float, cap_s: float) -> None:
        self.chance = self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._limit_s = min(first_s, cap_s)
        self._restart_left_s = 0.0

    def another(self) -> "Backoff":
        """Return one with the same limits, for another controller."""
        return Backoff(self._rng, self._first_s, self._cap_s)

    def reset(self) -> None:
        """Begin again with the shortest delay, after a success, and let them stay short."""
        self._limit_s = min(self._first_s, self._cap_s)
        self._restart_left_s = _RESTART_S

    def refused_s(self) -> float:
        """Return how long to wait after a refusal: somebody has to do something first."""
        return self._rng.uniform(*_REFUSED_S)

    def next_s(self) -> float:
        """Return how long to wait now."""
        restarting = self._restart_left_s > 0
        limit_s = min(self._limit_s, _RESTART_WAIT_MAX_S) if restarting else self._limit_s
        self._limit_s = min(self._cap_s, 2.0 * limit_s)
        wait_s = self._rng.uniform(0.0, limit_s)
        self._restart_left_s -= wait_s
        return wait_s
