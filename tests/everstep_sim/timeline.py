"""Virtual time: a queue of what is to happen, in order; nothing really waits."""

import heapq
import random
from collections.abc import Callable

SECOND = 1_000_000_000


class VirtualTime:
    """Event queue in virtual time, and the one source of randomness."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 0
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0

    def after(self, delay_s: float, then: Callable[[], object]) -> None:
        """Have something happen later."""
        self.at(self.now_ns + int(delay_s * SECOND), then)

    def at(self, at_ns: int, then: Callable[[], object]) -> None:
        """Have something happen at a time, to the nanosecond; at once where that is over."""
        self._count += 1
        heapq.heappush(self._queue, (max(self.now_ns, at_ns), self._count, then))

    def soon(self, least_s: float, most_s: float, then: Callable[[], object]) -> None:
        """Have something happen after a random while."""
        self.after(self.rng.uniform(least_s, most_s), then)

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Let time pass until ``done`` or the limit."""
        queue, until_ns = self._queue, until_s * SECOND
        while queue and queue[0][0] <= until_ns and not done():
            self.now_ns, _, then = heapq.heappop(queue)
            then()
