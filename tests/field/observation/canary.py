"""Canary: a thread that sleeps briefly, again and again, and notes how much too long it slept."""

import threading
import time
from collections.abc import Callable

from field.observation.records import Lateness

_SLEEP_S = 0.1
# Shorter delays are no news.
_TOLD_S = 0.25


class Canary:
    """Measures how late this machine lets programs run; machines of the field run on it, too."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sing, name="canary", daemon=True)
        self.late: list[Lateness] = []

    def __enter__(self) -> "Canary":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sing(self) -> None:
        while not self._over.is_set():
            slept = time.monotonic()
            time.sleep(_SLEEP_S)
            late_s = time.monotonic() - slept - _SLEEP_S
            if late_s > _TOLD_S:
                self.late.append(Lateness(self._now(), round(late_s, 3)))
