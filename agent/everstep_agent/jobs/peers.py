"""Peers of a job: who is connected for it, as far as the job has to know."""

from typing import Protocol


class Launcher(Protocol):
    """A connected launcher."""

    def tell(self, message: object) -> None:
        """Send a message, in order."""
        ...

    def hang_up(self) -> None:
        """End the connection."""
        ...


class Rank(Protocol):
    """A connected training process."""

    def hang_up(self) -> None:
        """End the connection."""
        ...
