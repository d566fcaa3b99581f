"""Timers of the core on the event loop: each reports TimerDue once, at or after its time.

What came due while the controller stood still is put off by the time that it still had: first what
lies in the sockets is taken, which may be just what the timer waits for.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_controller.runtime.stalls import BEAT_NS, Absence, StallWatch

# For one pass over the sockets: streams are read in turns, and each turn waits for the journal.
_PASS_NS = 250_000_000


@dataclass(slots=True)
class _Timer:
    """A timer that waits. ``due_ns`` is later than ``at_ns`` where an absence was forgiven."""

    at_ns: int
    due_ns: int
    handle: asyncio.TimerHandle


class Timers:
    """Timers by name; setting one again replaces it."""

    def __init__(
        self,
        now_ns: Callable[[], int],
        due: Callable[[str], None],
        stalled: Callable[[Absence], None] = lambda _: None,
    ) -> None:
        self._now_ns = now_ns
        self._due = due
        self._stalled = stalled
        self._waiting: dict[str, _Timer] = {}
        self._watch: StallWatch | None = None
        # The newest time in which nobody was heard.
        self._absence: Absence | None = None
        self._beat: asyncio.TimerHandle | None = None

    def watch_loop(self, away: Absence | None = None) -> None:
        """Notice from now on when this loop stands still; ``away``: before it was started."""
        self._watch, self._absence = StallWatch(self._now_ns()), away
        self._turn()

    def set(self, name: str, at_ns: int) -> None:
        """Have a timer come due; one that is overdue does so at once."""
        known = self._waiting.get(name)
        if known is not None:
            if known.at_ns == at_ns:
                return
            known.handle.cancel()
        due_ns = self._absence.postponed_ns(at_ns) if self._absence is not None else at_ns
        self._waiting[name] = _Timer(at_ns, due_ns, self._call(name, due_ns))

    def keep_only(self, timers: Mapping[str, int]) -> None:
        """Set exactly these timers."""
        for name in self._waiting.keys() - timers.keys():
            self._waiting.pop(name).handle.cancel()
        for name, at_ns in timers.items():
            self.set(name, at_ns)

    @property
    def stalls(self) -> int:
        """Return how often this loop has stood still."""
        return self._watch.count if self._watch is not None else 0

    def stop(self) -> None:
        """Cancel all timers."""
        self.keep_only({})
        if self._beat is not None:
            self._beat.cancel()

    # ---------------------------------------------------------------------------------------------

    def _call(self, name: str, due_ns: int) -> asyncio.TimerHandle:
        delay_s = max(0, due_ns - self._now_ns()) / 1e9
        return asyncio.get_running_loop().call_later(delay_s, self._fire, name)

    def _fire(self, name: str) -> None:
        self._notice_stall()
        timer = self._waiting[name]
        if timer.due_ns > self._now_ns():
            # Put off just now; or the loop's clock and the controller's differ by a tick. Never
            # report it early.
            timer.handle.cancel()
            timer.handle = self._call(name, timer.due_ns)
            return
        del self._waiting[name]
        self._due(name)

    def _turn(self) -> None:
        self._notice_stall()
        self._beat = asyncio.get_running_loop().call_later(BEAT_NS / 1e9, self._turn)

    def _notice_stall(self) -> None:
        """Put off what came due in a stall that has just ended.

        The stall itself is told after one pass over the sockets, and before any of these timers.
        """
        stall = self._watch.turned(self._now_ns()) if self._watch is not None else None
        if stall is None or self._watch is None:
            return
        asyncio.get_running_loop().call_later(_PASS_NS / 1e9, self._stalled, stall)
        if not self._watch.forgiving:
            return
        self._absence = stall
        for name, timer in self._waiting.items():
            put_off_ns = stall.postponed_ns(timer.due_ns)
            timer.due_ns = put_off_ns + _PASS_NS if put_off_ns != timer.due_ns else put_off_ns
            # Also those that are not due yet: the loop's clock stands while a machine is suspended.
            timer.handle.cancel()
            timer.handle = self._call(name, timer.due_ns)
