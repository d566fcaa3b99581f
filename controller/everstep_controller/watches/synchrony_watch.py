"""Synchrony watch: asks the database every few seconds whether its commits are on a standby.

It asks in the thread of the journal's reads: a database that does not answer holds up nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.journal.port import JournalAccessError
from everstep_controller.journal.synchrony import (
    LostSynchrony,
    Replication,
    Synchrony,
    WantedSynchrony,
    judge,
    observe,
)
from everstep_controller.runtime.controller_findings import JOURNAL_UNREPLICATED

logger = logging.getLogger(__name__)

# Two small catalogues, 1 ms of the server.
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class SynchronyMemory:
    """What the journal keeps for the next controller: whether commits were ever synchronous."""

    was_synchronous: bool
    keep: Callable[[bool], None]


class SynchronyWatch:
    """Watch of a journal's replication; used on the event loop."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Replication | None]],
        wanted: WantedSynchrony,
        memory: SynchronyMemory,
        now_ns: Callable[[], int],
        announce: Callable[[str, str, str], None],
    ) -> None:
        self._ask = ask
        self._wanted = wanted
        self._keep = memory.keep
        self._was_synchronous = memory.was_synchronous
        self._now_ns = now_ns
        self._announce = announce
        self._lost: LostSynchrony | None = None
        # None: nothing was read yet, or the journal is a file.
        self.newest: Synchrony | None = None

    def lost(self) -> LostSynchrony | None:
        """Return why a failover loses what was acknowledged; None where it does not."""
        return self._lost

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_ASK_S)

    async def look(self) -> None:
        """Ask once; what is known stays where there is no answer."""
        try:
            told = await self._ask()
        except JournalAccessError as error:
            logger.debug("the replication of the journal is not known: %s", error)
            return
        if told is not None:
            self.newest = observe(self.newest, told, self._now_ns())
            self._remember(self.newest)
            self._tell(judge(self.newest, self._wanted, was_synchronous=self._was_synchronous))

    def _remember(self, seen: Synchrony) -> None:
        if self._wanted is WantedSynchrony.NEVER:
            # Who gives it up and wants it again later begins anew.
            was = False
        else:
            was = self._was_synchronous or seen.is_synchronous
        if was != self._was_synchronous:
            self._was_synchronous = was
            self._keep(was)

    def _tell(self, lost: LostSynchrony | None) -> None:
        before, self._lost = self._lost, lost
        if lost is not None and before is None:
            self._announce(CONTROLLER, JOURNAL_UNREPLICATED.name, lost.sentence)
        elif lost is None and before is not None:
            reason = f"{JOURNAL_UNREPLICATED.name}Cleared"
            self._announce(CONTROLLER, reason, "commits of the journal are on a standby again")
