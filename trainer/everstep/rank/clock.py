"""Clock: the Protocol by which waits for the agent are measured and slept."""

from typing import Protocol


class Clock(Protocol):
    """Monotonic clock in seconds, and a way to let some of them pass."""

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return that much later."""
        ...
