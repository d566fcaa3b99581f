"""Event list: what happened and was decided, read back, and followed as it grows."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.journal.port import Announcement, JournalReader
from everstep_controller.journal.reading import JournalReads
from everstep_controller.runtime.controller_findings import SINCE_REASONS
from everstep_controller.runtime.runtime import Runtime

_LINES_DEFAULT = 100
_LINES_MAX = 10_000
# Lines that the journal's thread may not have written yet when somebody asks.
_RECENT = 1000
# A follower that reads slower than this is cut off rather than kept in memory.
_FOLLOWER_LAG = 10_000


@dataclass(frozen=True, slots=True)
class LineChoice:
    """Which old lines are read back: of one subject if it is named, the newest, from a time on."""

    subject: str = ""
    limit: int = 0
    since_ns: int = 0

    @property
    def lines_max(self) -> int:
        """Return how many lines: who asks for a time wants all of it."""
        return min(self.limit or (_LINES_MAX if self.since_ns else _LINES_DEFAULT), _LINES_MAX)

    def takes(self, line: Announcement) -> bool:
        """Return whether a line is one of these."""
        return self.subject in ("", line.subject) and line.at_ns >= self.since_ns


class FollowerTooSlowError(Exception):
    """A follower of the event list does not keep up."""


class EventLog:
    """Event list of the journal, with the lines that are still on their way there."""

    def __init__(self, runtime: Runtime, history: JournalReader, reads: JournalReads) -> None:
        self._runtime = runtime
        self._reads = reads
        self._recent: deque[Announcement] = deque(maxlen=_RECENT)
        self._followers: set[asyncio.Queue[Announcement]] = set()
        # By subject and reason, when there was a line of it last.
        self._last_ns: dict[tuple[str, str], int] = {}
        for subject in (CONTROLLER, *runtime.state.paused):
            for line in history.announcements(subject, _LINES_DEFAULT):
                self._note(line)
        runtime.on_announcement(self._add)

    async def lines(self, choice: LineChoice) -> list[Announcement]:
        """Return the newest lines that are chosen, oldest first. Raises JournalAccessError."""
        subject, limit = choice.subject, choice.lines_max
        stored = await self._reads.ask(
            lambda reader: reader.announcements(subject, limit, choice.since_ns)
        )
        lines = {line.id: line for line in stored}
        lines |= {line.id: line for line in self._recent if choice.takes(line)}
        return [line for _, line in sorted(lines.items())][-limit:]

    def last_ns(self, subject: str, reason: str) -> int:
        """Return when there was a line of one of SINCE_REASONS last; unknown is now."""
        return self._last_ns.get((subject, reason), self._runtime.now_ns())

    async def follow(
        self, choice: LineChoice, *, endlessly: bool
    ) -> AsyncGenerator[Announcement, None]:
        """Yield old lines, and then new ones as they come.

        Raises FollowerTooSlowError, JournalAccessError.
        """
        queue: asyncio.Queue[Announcement] = asyncio.Queue(_FOLLOWER_LAG)
        self._followers.add(queue)
        last = 0
        try:
            for line in await self.lines(choice):
                last = line.id
                yield line
            while endlessly:
                line = await queue.get()
                if queue not in self._followers:
                    raise FollowerTooSlowError("events came faster than they were read")
                if line.id > last and choice.takes(line):
                    yield line
        finally:
            self._followers.discard(queue)

    def _note(self, line: Announcement) -> None:
        if line.reason in SINCE_REASONS:
            self._last_ns[line.subject, line.reason] = line.at_ns

    def _add(self, line: Announcement) -> None:
        self._note(line)
        self._recent.append(line)
        for queue in list(self._followers):
            if queue.full():
                self._followers.discard(queue)
            else:
                queue.put_nowait(line)
