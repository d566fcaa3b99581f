"""Standby: follows a journal that another controller writes, until it takes it over itself.

All that waits for the database is done in one thread; the state is folded on the event loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from everstep_common.version import VERSION
from everstep_controller.journal.lease import LOOK_S
from everstep_controller.journal.port import (
    JournalAccessError,
    JournalCandidate,
    JournalReader,
    JournalRefusedError,
    JournalWentBackError,
    WriterSeen,
)
from everstep_controller.standby.following import (
    Followed,
    FollowedJournal,
    JournalNews,
    read_at_look,
    read_events,
)
from everstep_controller.standby.told import ControllerTold, controller_told, skew_problem

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Events are read so often at most: each read asks for the end of the chain as well.
_APART_S = 0.05
_RETRY_S = 1.0


class Served(Protocol):
    """What a standby serves while it follows."""

    @property
    def port(self) -> int:
        """Return the port of agents and the command line; 0 for a Unix socket."""
        ...

    @property
    def metrics_port(self) -> int:
        """Return the port of /metrics; 0 where it is not served."""
        ...

    async def start(self) -> None:
        """Begin to serve."""
        ...

    async def stop(self) -> None:
        """Serve no more, and free the addresses."""
        ...


@dataclass(frozen=True, slots=True)
class StandbyParts:
    """What a standby is made of, besides the journal."""

    told: ControllerTold
    candidate: JournalCandidate
    open_reader: Callable[[], JournalReader]
    # Fold the journal that a reader shows; called on the event loop.
    follow: Callable[[JournalReader], Awaitable[FollowedJournal]]
    # What serves the state and tells of new lines of the event list.
    serve: Callable[[FollowedJournal], Served]
    publish: Callable[[JournalNews], None]
    # Have the next start act on nothing until a recovery.
    note_old_journal: Callable[[], None]
    # Called once it serves.
    ready: Callable[[Served], None]


class Standby:
    """Standby of one process."""

    def __init__(self, parts: StandbyParts) -> None:
        self._parts = parts
        self._thread = ThreadPoolExecutor(1, "standby")
        self._reader: JournalReader | None = None
        self._trouble = ""

    async def run(self) -> Followed:
        """Follow until the journal is this process's own; return what was followed of it.

        Raises JournalRefusedError, and what folding a journal does.
        """
        try:
            writer = await self._first_look()
            if writer is None:
                return Followed(offset_ns=None)
            return await self._follow(writer)
        finally:
            await self._close()

    async def _first_look(self) -> WriterSeen | None:
        """Return who writes the journal; None where nobody does, and it was taken."""
        while True:
            with suppress(JournalAccessError):
                writer = await self._look(self._parts.told)
                if not writer.is_gone:
                    return writer
                if await self._take(self._parts.told):
                    return None
            await asyncio.sleep(_RETRY_S)

    async def _follow(self, writer: WriterSeen) -> Followed:
        parts = self._parts
        self._refuse_skew(writer)
        logger.info("standing by: %s writes the journal (term %d)", _named(writer), writer.term)
        followed = await parts.follow(parts.open_reader())
        served = parts.serve(followed)
        await served.start()
        parts.ready(served)
        try:
            await self._until_taken(followed)
        finally:
            await served.stop()
        return self._handed_over(followed)

    async def _until_taken(self, followed: FollowedJournal) -> None:
        loop = asyncio.get_running_loop()
        self._reader = self._parts.open_reader()
        looked_s = float("-inf")
        while True:
            is_look = followed.writer is None or loop.time() - looked_s >= LOOK_S
            try:
                if is_look:
                    looked_s = loop.time()
                    news = await self._news_at_look(followed)
                else:
                    news = await self._asked(read_events, self._reader, followed.read_through)
            except JournalAccessError as error:
                self._note_trouble(str(error))
                await asyncio.sleep(LOOK_S)
                continue
            self._note_trouble("")
            self._parts.publish(news)
            try:
                followed.take(news)
            except JournalWentBackError:
                self._parts.note_old_journal()
                raise
            if news.writer is not None:
                self._refuse_skew(news.writer)
                if followed.may_take and await self._taken(followed):
                    return
            if not followed.is_behind:
                await asyncio.sleep(_APART_S)
                waits_s = max(0.0, looked_s + LOOK_S - loop.time())
                await self._asked(self._parts.candidate.wait, waits_s)

    async def _news_at_look(self, followed: FollowedJournal) -> JournalNews:
        assert self._reader is not None
        writer = await self._look(self._told_of(followed))
        through, line = followed.read_through, followed.after_line
        return await self._asked(read_at_look, self._reader, writer, through, line)

    async def _taken(self, followed: FollowedJournal) -> bool:
        """Take the journal of a writer that is gone; False where another one was faster."""
        writer = followed.writer
        assert writer is not None
        if writer.writer:
            logger.warning(
                "%s is gone: no sign of it for %.1f s, and the database answers; this standby "
                "takes over",
                _named(writer),
                writer.still_s,
            )
        else:
            logger.info("the journal was given back; this standby takes over")
        try:
            taken = await self._take(self._told_of(followed))
        except JournalAccessError:
            return False
        if not taken:
            logger.info("another controller was faster; standing by")
        return taken

    async def _look(self, told: ControllerTold) -> WriterSeen:
        try:
            writer = await self._asked(self._parts.candidate.look, told.encode())
        except JournalAccessError as error:
            self._note_trouble(str(error))
            raise
        self._note_trouble("")
        return writer

    async def _take(self, told: ControllerTold) -> bool:
        try:
            return await self._asked(self._parts.candidate.take, replace(told, seq=0).encode())
        except JournalAccessError as error:
            self._note_trouble(str(error))
            raise

    def _told_of(self, followed: FollowedJournal) -> ControllerTold:
        return replace(
            self._parts.told,
            seq=followed.read_through,
            behind_s=round(followed.behind_s(), 3) if followed.behind_events else 0.0,
        )

    def _handed_over(self, followed: FollowedJournal) -> Followed:
        """Return what the controller goes on from."""
        offset_ns = followed.clock.offset_to_boot_ns
        writer = followed.writer
        same = writer is not None and controller_told(writer.told).version == VERSION
        if not same or followed.fold.state.halted:
            # Another version decided by its own rules: a start goes by its newest snapshot. Of one
            # that was halted not all that came counts.
            return Followed(offset_ns)
        return Followed(offset_ns, followed.fold, followed.unrecorded())

    def _refuse_skew(self, writer: WriterSeen) -> None:
        if problem := skew_problem(VERSION, controller_told(writer.told).version):
            raise JournalRefusedError(problem)

    def _note_trouble(self, trouble: str) -> None:
        if trouble and not self._trouble:
            logger.warning("this standby cannot follow: %s; it asks again", trouble)
        elif self._trouble and not trouble:
            logger.info("this standby follows again")
        self._trouble = trouble

    async def _asked(self, question: Callable[..., T], *arguments: object) -> T:
        """Ask the database in the thread of this standby."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, question, *arguments)

    async def _close(self) -> None:
        """Close the connection of the thread, which ends what it is at first.

        It may be taking the journal, which the caller gives back only when that is over.
        """
        await self._asked(self._close_reader)
        self._thread.shutdown(wait=False)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _named(writer: WriterSeen) -> str:
    told = controller_told(writer.told)
    at = f" ({told.address})" if told.address else ""
    return f"{writer.writer or 'nobody'}{at}"
