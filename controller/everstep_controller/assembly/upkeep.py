"""Assembly of the upkeep: what a controller does by the clock, for its journal and its progress."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from everstep_controller.assembly.fleet import Fleet
from everstep_controller.assembly.foundation import Foundation, NamedTask
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.runtime.housekeeping import Housekeeping, Retention, make_scheduler

_TICK_S = 0.1
_ALIVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Chores, and what is written down every few seconds."""

    base: Foundation
    fleet: Fleet
    housekeeping: Housekeeping
    scheduler: AsyncIOScheduler

    def tasks(self) -> Iterator[NamedTask]:
        """Yield what runs as long as the controller does."""
        yield "progress ticker", self._tick
        yield "time alive", self._keep_alive

    def keep_clock(self) -> None:
        """Write down the timeline, and how far on it this controller was alive."""
        timeline = self.base.timeline
        witnesses = self.fleet.sessions.witnesses(timeline.clock.now_ns())
        self.base.journal.write(timeline.written(witnesses))

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_S)
            self.keep_clock()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.fleet.intake.tick(self.base.runtime.now_ns())


def assemble_upkeep(config: ControllerConfig, base: Foundation, fleet: Fleet) -> Upkeep:
    """Return it, not started."""
    retention = Retention(
        config.events_retention_days,
        config.announcements_retention_days,
        config.history_retention_days,
    )
    housekeeping = Housekeeping(base.runtime, base.journal, retention)
    scheduler = make_scheduler(housekeeping.chores(), config.state_snapshot_interval_s)
    return Upkeep(base, fleet, housekeeping, scheduler)
