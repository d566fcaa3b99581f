"""Timers of the core on the event loop: each reports TimerDue once, at or after its time."""

import asyncio
from collections.abc import Callable, Mapping


class Timers:
    """Timers by name; setting one again replaces it."""

    def __init__(self, now_ns: Callable[[], int], due: Callable[[str], None]) -> None:
        self._now_ns = now_ns
        self._due = due
        self._waiting: dict[str, tuple[int, asyncio.TimerHandle]] = {}

    def set(self, name: str, at_ns: int) -> None:
        """Have a timer come due; one that is overdue does so at once."""
        known = self._waiting.get(name)
        if known is not None:
            if known[0] == at_ns:
                return
            known[1].cancel()
        delay_s = max(0, at_ns - self._now_ns()) / 1e9
        loop = asyncio.get_running_loop()
        self._waiting[name] = (at_ns, loop.call_later(delay_s, self._fire, name))

    def keep_only(self, timers: Mapping[str, int]) -> None:
        """Set exactly these timers."""
        for name in self._waiting.keys() - timers.keys():
            self._waiting.pop(name)[1].cancel()
        for name, at_ns in timers.items():
            self.set(name, at_ns)

    def stop(self) -> None:
        """Cancel all timers."""
        self.keep_only({})

    def _fire(self, name: str) -> None:
        at_ns, _ = self._waiting.pop(name)
        if at_ns > self._now_ns():
            # The loop's clock and the controller's may differ by a tick: never report it early.
            self.set(name, at_ns)
            return
        self._due(name)
