"""Watch over what takes cases: errors that nobody raises to the caller, and what is left behind."""

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

# After one world to get warm; what a cache or a pool may take beside it.
_DESCRIPTORS_SPARE = 16
_THREADS_SPARE = 8


class _Records(logging.Handler):
    """Keeps the errors that are logged with a traceback, or as an error."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._found.append(logging.Formatter().format(record))


@dataclass(slots=True)
class Watch:
    """What was found since `take` was called last, as texts."""

    _found: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        """Return what was found, once."""
        found = list(self._found)
        self._found.clear()
        return found

    def on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take an error of a task or callback that nobody waits for."""
        error = context.get("exception")
        self._found.append(_text(str(context.get("message")), error))

    def on_error(
        self,
        _: type[BaseException],
        error: BaseException | None,
        __: TracebackType | None,
    ) -> None:
        """Take an error of a thread, or one that was raised while an object was dropped."""
        self._found.append(_text("not raised to anybody", error))


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch this process's logs, threads and dropped objects; a loop is told of it by its owner."""
    watch = Watch()
    records = _Records(watch._found)
    root = logging.getLogger()
    before, unraisable = threading.excepthook, sys.unraisablehook
    root.addHandler(records)
    threading.excepthook = lambda a: watch.on_error(a.exc_type, a.exc_value, a.exc_traceback)
    sys.unraisablehook = lambda a: watch.on_error(a.exc_type, a.exc_value, a.exc_traceback)
    try:
        yield watch
    finally:
        root.removeHandler(records)
        threading.excepthook, sys.unraisablehook = before, unraisable


@dataclass(frozen=True, slots=True)
class Held:
    """What this process holds: descriptors, threads, and resident memory in bytes."""

    descriptors: int
    threads: int
    memory_bytes: int

    @classmethod
    def now(cls) -> "Held":
        """Return what is held after a collection of garbage."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            sum(map(_counts, os.listdir("/proc/self/fd"))),
            threading.active_count(),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )

    def left_behind(self, before: "Held") -> str:
        """Return what was left behind since ``before``, which is alike; "" for nothing."""
        told = []
        if self.descriptors > before.descriptors + _DESCRIPTORS_SPARE:
            told.append(f"{self.descriptors - before.descriptors} descriptors")
        if self.threads > before.threads + _THREADS_SPARE:
            told.append(f"{self.threads - before.threads} threads")
        return ", ".join(told)


def _counts(descriptor: str) -> bool:
    """Return whether it counts: the descriptors of snapshot memory outlive their agent."""
    try:
        return not os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:everstep-")
    except OSError:  # that of the list itself
        return False


def _text(what: str, error: BaseException | None) -> str:
    if error is None:
        return what
    record = logging.LogRecord(
        "fuzz", logging.ERROR, "", 0, what, None, (type(error), error, error.__traceback__)
    )
    return logging.Formatter().format(record)
