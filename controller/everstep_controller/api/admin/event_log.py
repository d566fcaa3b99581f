"""Event list: what happened and was decided, read back, and followed as it grows."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from everstep_controller.journal.store import Announcement, JournalStore
from everstep_controller.runtime.runtime import Runtime

_LINES_DEFAULT = 100
_LINES_MAX = 10_000
# Lines that the journal's thread may not have written yet when somebody asks.
_RECENT = 1000
# A follower that reads slower than this is cut off rather than kept in memory.
_FOLLOWER_LAG = 10_000


class FollowerTooSlowError(Exception):
    """A follower of the event list does not keep up."""


class EventLog:
    """Event list of the journal, with the lines that are still on their way there."""

    def __init__(self, runtime: Runtime, history: JournalStore) -> None:
        self._runtime = runtime
        self._history = history
        self._recent: deque[Announcement] = deque(maxlen=_RECENT)
        self._followers: set[asyncio.Queue[Announcement]] = set()
        runtime.on_announcement(self._add)

    def lines(self, subject: str, limit: int) -> list[Announcement]:
        """Return the newest lines, of one subject if it is named, oldest first."""
        lines = {line.id: line for line in self._history.announcements(subject, limit)}
        lines |= {line.id: line for line in self._recent if subject in ("", line.subject)}
        return [line for _, line in sorted(lines.items())][-limit:]

    def last_ns(self, subject: str, reason: str) -> int:
        """Return when there was a line of this reason last; unknown is now."""
        found = (line.at_ns for line in reversed(self.lines(subject, 100)) if line.reason == reason)
        return next(found, self._runtime.now_ns())

    async def follow(
        self, subject: str, limit: int, *, endlessly: bool
    ) -> AsyncGenerator[Announcement, None]:
        """Yield old lines, and then new ones as they come. Raises FollowerTooSlowError."""
        queue: asyncio.Queue[Announcement] = asyncio.Queue(_FOLLOWER_LAG)
        self._followers.add(queue)
        last = 0
        try:
            for line in self.lines(subject, min(limit or _LINES_DEFAULT, _LINES_MAX)):
                last = line.id
                yield line
            while endlessly:
                line = await queue.get()
                if queue not in self._followers:
                    raise FollowerTooSlowError("events came faster than they were read")
                if line.id > last and subject in ("", line.subject):
                    yield line
        finally:
            self._followers.discard(queue)

    def _add(self, line: Announcement) -> None:
        self._recent.append(line)
        for queue in list(self._followers):
            if queue.full():
                self._followers.discard(queue)
            else:
                queue.put_nowait(line)
