"""Descriptor readiness: has a source read as soon as its descriptor becomes readable."""

import asyncio
from collections.abc import Callable


class Readiness:
    """Watch on a descriptor between looks; during one it stays readable anyway.

    ``descriptor`` may be None for now: then only the interval of the source leads to a look.
    """

    def __init__(self, descriptor: Callable[[], int | None], has_news: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._has_news = has_news
        self._wake: Callable[[], None] | None = None
        self._watched: int | None = None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Listen."""
        self._wake = wake
        self.arm()
        return self._end

    def arm(self, again: bool = False) -> None:
        """Watch from now on; ``again``: there is more to read, whatever the descriptor says."""
        if self._wake is None:
            return
        if again:
            self._wake()
        if self._watched is None and (descriptor := self._descriptor()) is not None:
            asyncio.get_running_loop().add_reader(descriptor, self._readable)
            self._watched = descriptor

    def _readable(self) -> None:
        if self._has_news() and self._wake is not None:
            self._disarm()
            self._wake()

    def _disarm(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    def _end(self) -> None:
        self._disarm()
        self._wake = None
