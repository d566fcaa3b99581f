"""Event loops whose timing is as hostile as asyncio allows: what is ready is seen late, at random.

For finding races: ``EVERSTEP_TEST_JITTER=7 pytest tests/integration`` runs the tests on such loops,
``7,200`` with delays of up to 200 ms. The seed starts the dice; threads do not repeat themselves.
"""

import asyncio
import contextvars
import random
import selectors
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Share of what happens that is held back a little, and of connections that are slow for a while:
# one that overtakes another finds more races than all of them late.
_LATE = 0.3
_SLOW = 0.3
_SLOW_FOR_S = 1.0
# A tenth of the longest delay is a little.
_LITTLE = 0.1
_LONGEST_S = 0.03
# Held events are ready all the time: how often to look whether others have come.
_LOOK_S = 0.001
# A thread gives the interpreter up after so long, not after 5 ms.
_SWITCH_S = 1e-5


class Dice:
    """How late things are. Threads share it."""

    def __init__(self, seed: int, longest_s: float) -> None:
        self._random = random.Random(seed)
        self._longest_s = longest_s

    def slow(self) -> bool:
        """Return whether something is slow for a while."""
        return self._random.random() < _SLOW

    def late_s(self, *, slow: bool) -> float:
        """Return a delay; none, as a rule, of what is not slow."""
        if slow:
            return self._random.uniform(0.0, self._longest_s)
        if self._random.random() > _LATE:
            return 0.0
        return self._random.uniform(0.0, _LITTLE * self._longest_s)

    def shuffle(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        """What is ready at one time comes in any order."""
        self._random.shuffle(events)


class _LateSelector(selectors.DefaultSelector):
    """Tells of each ready descriptor a moment later, and sleeps longer than it was asked to."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice = dice
        # When to tell of a descriptor that is ready.
        self._due: dict[int, float] = {}
        # Which are slow, and until when.
        self._slow: dict[int, tuple[bool, float]] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        now = time.monotonic()
        until = float("inf") if timeout is None else now + max(0.0, timeout)
        if timeout is not None and timeout > 0.0:
            until += self._dice.late_s(slow=False)
        while True:
            # Nothing is held while it waits: what comes wakes it.
            wait_s = None if until == float("inf") else max(0.0, until - now)
            ready = super().select(0.0 if self._due else wait_s)
            now = time.monotonic()
            if told := self._told(ready, now):
                return told
            if now >= until:
                return []
            if self._due:
                time.sleep(min(_LOOK_S, max(0.0, until - now)))
                now = time.monotonic()

    def _told(
        self, ready: list[tuple[selectors.SelectorKey, int]], now: float
    ) -> list[tuple[selectors.SelectorKey, int]]:
        before, self._due = self._due, {}
        told = []
        for key, events in ready:
            due = before.get(key.fd)
            if due is None:
                due = now + self._dice.late_s(slow=self._is_slow(key.fd, now))
            if due <= now:
                told.append((key, events))
            else:
                self._due[key.fd] = due
        self._dice.shuffle(told)
        return told

    def _is_slow(self, fd: int, now: float) -> bool:
        slow, until = self._slow.get(fd, (False, 0.0))
        if now >= until:
            slow, until = self._dice.slow(), now + _SLOW_FOR_S
            self._slow[fd] = (slow, until)
        return slow


class HostileLoop(asyncio.SelectorEventLoop):
    """A loop on which everything from outside is late. What asyncio promises still holds.

    Callbacks of one kind keep their order; timers are late, but never early.
    """

    def __init__(self, dice: Dice) -> None:
        super().__init__(_LateSelector(dice))
        self._dice = dice
        self._home = threading.get_ident()
        self._last_due = 0.0

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See asyncio; what another thread says comes late, and in its order."""
        if threading.get_ident() == self._home:
            return super().call_soon_threadsafe(callback, *args, context=context)
        within = context or contextvars.copy_context()

        def arrive() -> None:
            late_s = self._dice.late_s(slow=self._dice.slow())
            due = max(self.time() + late_s, self._last_due + 1e-6)
            self._last_due = due
            self.call_at(due, callback, *args, context=within)

        return super().call_soon_threadsafe(arrive)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See asyncio; the thread begins late."""

        def late() -> T:
            time.sleep(self._dice.late_s(slow=self._dice.slow()))
            return func(*args)

        return super().run_in_executor(executor, late)


class HostilePolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops wherever nobody asked for another."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice = dice

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """See asyncio."""
        return HostileLoop(self._dice)


def install(wanted: str) -> None:
    """Make all loops of this process hostile ("seed", or "seed,longest delay in ms")."""
    seed, _, longest_ms = wanted.partition(",")
    sys.setswitchinterval(_SWITCH_S)
    dice = Dice(int(seed), float(longest_ms) / 1e3 if longest_ms else _LONGEST_S)
    asyncio.set_event_loop_policy(HostilePolicy(dice))
