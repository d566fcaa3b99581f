"""An event loop on virtual time: when nothing can run, time jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now_s += max(timeout, 0.0)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while something runs."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now_s


def simulate(scenario: Coroutine[None, None, T]) -> T:
    """Run a scenario to its end, in no time at all."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(scenario)
