"""Retry backoff: random delays between attempts, so that a fleet does not return in step."""

import random

# Half of the time that a controller listens which rebuilds its journal: it hears every agent.
_REFUSED_S = (3.0, 12.0)


class Backoff:
    """Delays in seconds, each drawn between nothing and a limit that doubles up to ``cap_s``."""

    def __init__(self, rng: random.Random, first_s: float, cap_s: float) -> None:
        self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._attempt = 0

    def reset(self) -> None:
        """Begin again with the shortest delay, after a success."""
        self._attempt = 0

    def refused_s(self) -> float:
        """Return how long to wait after a refusal: somebody has to do something first."""
        return self._rng.uniform(*_REFUSED_S)

    def next_s(self) -> float:
        """Return how long to wait now."""
        limit_s = min(self._cap_s, self._first_s * 2.0 ** min(self._attempt, 30))
        self._attempt += 1
        return self._rng.uniform(0.0, limit_s)
