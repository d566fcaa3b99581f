"""Controller service: starts and stops the parts that the assembly makes, in their order."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from everstep_common.machine import machine_id
from everstep_common.version import VERSION
from everstep_controller.api.admin.controllers import OwnPart
from everstep_controller.assembly.acting import Acting, assemble_acting
from everstep_controller.assembly.enrolment import Enrolment, assemble_enrolment
from everstep_controller.assembly.fleet import Fleet, assemble_fleet
from everstep_controller.assembly.foundation import Foundation, NamedTask, open_foundation
from everstep_controller.assembly.foundation import Options as Options  # callers have it from here
from everstep_controller.assembly.pages import Pages, start_pages
from everstep_controller.assembly.serving import ServedRole, Serving, assemble_serving
from everstep_controller.assembly.standby import told_of
from everstep_controller.assembly.upkeep import Upkeep, assemble_upkeep
from everstep_controller.assembly.watches import Watches, assemble_watches
from everstep_controller.assembly.webhooks import assemble_webhooks
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.config.group_config import expanded_groups
from everstep_controller.core.events import (
    ClusterNamed,
    ControllerStalled,
    ControllerStarted,
    Event,
    RecoveryBegun,
    SettingsApplied,
)
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.journal.port import (
    JournalAccessError,
    JournalLostError,
    JournalReader,
    JournalWentBackError,
)
from everstep_controller.runtime.runtime import Journaling, Runtime
from everstep_controller.standby.told import ControllerTold, controller_told
from everstep_controller.webhooks.webhooks import Webhooks

_STOP_S = 2.0
# A standby is woken at once, and takes a few milliseconds.
_SUCCEEDED_S, _LOOK_S = 2.0, 0.02


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """The parts of a controller by subject, each made from those before it."""

    base: Foundation
    acting: Acting
    fleet: Fleet
    watches: Watches
    webhooks: Webhooks
    enrolment: Enrolment
    serving: Serving
    upkeep: Upkeep
    # The address of the standby that takes over, once an operator has ordered that.
    handing_over: "asyncio.Future[str]"

    def tasks(self) -> Iterator[NamedTask]:
        """Yield what runs as long as the controller does."""
        yield from self.upkeep.tasks()
        yield from self.watches.tasks()
        yield from self.fleet.tasks()
        yield from self.enrolment.tasks()
        yield "webhook watch", partial(self.webhooks.watch, self.base.runtime.announce)


def open_parts(config: ControllerConfig, options: Options) -> ControllerParts:
    """Open the journal and make all parts. Raises what open_foundation does, and ListenError."""
    base = open_foundation(config, options)
    acting = assemble_acting(config, base)
    fleet = assemble_fleet(config, base, acting)
    watches = assemble_watches(config, options.judges, base, fleet)
    webhooks = assemble_webhooks(config, base)
    enrolment = assemble_enrolment(config, base)
    handing_over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hand_over(successor: str) -> None:
        if not handing_over.done():
            handing_over.set_result(successor)

    role = ServedRole(OwnPart(told_of(config), is_active=True, hand_over=hand_over))
    serving = assemble_serving(config, base, acting, fleet, watches, webhooks, enrolment, role)
    upkeep = assemble_upkeep(config, base, fleet)
    return ControllerParts(
        base, acting, fleet, watches, webhooks, enrolment, serving, upkeep, handing_over
    )


def _is_writer(journal: JournalReader, but: ControllerTold) -> bool:
    """Return whether another controller than one writes a journal."""
    writing = [controller_told(one.told) for one in journal.controllers() if one.is_writer]
    return any((one.host, one.pid) != (but.host, but.pid) for one in writing)


class Controller:
    """Controller of one process; opened on a running loop by the holder of the journal's lock."""

    def __init__(
        self, config: ControllerConfig, parts: ControllerParts, recover_by: str = ""
    ) -> None:
        self.parts = parts
        self._config = config
        self._recover_by = recover_by
        self._pages = Pages()
        self._running: list[asyncio.Task[None]] = []

    @classmethod
    def open(cls, config: ControllerConfig, options: Options) -> "Controller":
        """Open the journal, fold it and listen. Raises what open_parts does."""
        return cls(config, open_parts(config, options), options.recover_by)

    @property
    def runtime(self) -> Runtime:
        """Return the runtime, which has the state."""
        return self.parts.base.runtime

    @property
    def port(self) -> int:
        """Return the port of agents and the command line; 0 for a Unix socket."""
        return self.parts.serving.port

    @property
    def enrolment_port(self) -> int:
        """Return the port at which nodes enrol; 0 where none does."""
        return self.parts.enrolment.port

    @property
    def metrics_port(self) -> int:
        """Return the port of /metrics; 0 where it is not served."""
        return self._pages.metrics_port

    async def start(self) -> None:
        """Take up work. Raises JournalFull, and ListenError for the address of the metrics."""
        parts, base = self.parts, self.parts.base
        self._pages = start_pages(
            self._config,
            base,
            parts.acting,
            parts.fleet,
            parts.serving,
            parts.watches,
            parts.webhooks,
        )
        base.journal.start(base.history.last()[0])
        journaling = Journaling(base.journal.append, base.journal.write)
        base.runtime.begin(journaling, parts.acting.executor.act, base.history.last_announcement())
        base.runtime.adopt(base.unrecorded)
        parts.upkeep.keep_clock()
        parts.acting.targets.timers.watch_loop(base.away)
        beginning = [base.runtime.submit(event) for event in self._first_events()]
        # What agents say is journaled behind these, so that they need not wait for them to connect.
        await parts.serving.start()
        try:
            await asyncio.gather(*beginning)
        except JournalFull:
            await self._give_up()
            raise
        base.runtime.report_rejections(base.unrecorded)
        base.cluster.keep(base.state())
        base.runtime.act_on_what_is_due()
        parts.upkeep.scheduler.start()
        parts.acting.targets.drivers.start()
        parts.webhooks.start()
        self._running = [asyncio.create_task(run(), name=name) for name, run in parts.tasks()]

    async def handing_over(self) -> None:
        """Wait until an operator has ordered that a standby takes over."""
        await asyncio.shield(self.parts.handing_over)

    async def failure(self) -> str:
        """Wait until a part ends that never should; return which, and why."""
        parts = {*self._running, self.parts.base.journal.failure}
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        part = done.pop()
        lost = part.exception()
        if isinstance(lost, JournalWentBackError):
            self.parts.base.cluster.note_old_journal()
        if isinstance(lost, JournalLostError):
            return str(lost)
        name = part.get_name() if isinstance(part, asyncio.Task) else "journal's thread"
        return f"the {name} ended: {part.exception()!r}"

    async def stop(self) -> None:
        """End the streams, write everything down, and leave a snapshot for the next start."""
        parts, targets = self.parts, self.parts.acting.targets
        successor = parts.handing_over.result() if parts.handing_over.done() else ""
        for task in self._running:
            task.cancel()
        if self._running:
            parts.upkeep.scheduler.shutdown(wait=False)
        await targets.drivers.stop()
        await parts.webhooks.stop()
        await self._pages.stop()
        parts.upkeep.keep_clock()
        if successor:
            # Agents that were sent off before would ask a controller that stands by, and wait.
            await self._write_down()
            await parts.base.journal.stop()
            await self._until_succeeded()
            await self._leave(successor)
            await self._close_readers()
        else:
            await self._leave()
            await self._write_down()
            # The writer is the last: of a file it then leaves no log beside it.
            await self._close_readers()
            await parts.base.journal.stop()

    async def _close_readers(self) -> None:
        await self.parts.base.reads.close()
        self.parts.base.history.close()

    async def _leave(self, successor: str = "") -> None:
        """End the streams, and serve no more."""
        self.parts.fleet.streams.stop(successor)
        await self.parts.enrolment.stop()
        await self.parts.serving.stop(_STOP_S)

    async def _write_down(self) -> None:
        """Write all that is known, and a snapshot for the next start."""
        parts = self.parts
        parts.acting.targets.timers.stop()
        parts.fleet.intake.flush_all()
        await parts.upkeep.housekeeping.write_history_whole()
        await parts.upkeep.housekeeping.snapshot()

    async def _until_succeeded(self) -> None:
        """Give the journal back, and wait a moment for another controller to have it."""
        base, own = self.parts.base, told_of(self._config)
        await asyncio.to_thread(base.give_back)
        with suppress(TimeoutError, JournalAccessError):
            async with asyncio.timeout(_SUCCEEDED_S):
                while not await base.reads.ask(lambda journal: _is_writer(journal, own)):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)

    async def _give_up(self) -> None:
        """End a start that cannot write to the journal."""
        await self.parts.serving.stop(None)
        self.parts.acting.targets.timers.stop()
        await self._pages.stop()
        await self.parts.base.reads.close()
        await self.parts.base.journal.stop()

    def _first_events(self) -> Iterator[Event]:
        """Yield what the core hears before anything of its agents."""
        base = self.parts.base
        state, cluster = base.state(), base.cluster.cluster
        if base.away is not None:
            yield ControllerStalled(base.away.duration_ns)
        if cluster.id != state.cluster_id or cluster.term > state.term:
            yield ClusterNamed(cluster.id, cluster.term)
        yield ControllerStarted(VERSION, machine_id())
        settings, drivers = self._config.core, self.parts.acting.targets.drivers.names
        groups, now = expanded_groups(self._config.groups), base.state()
        if (settings, {*drivers}, groups) != (now.settings, {*now.drivers}, now.groups):
            yield SettingsApplied(settings, drivers, groups)
        if self._recover_by:
            yield RecoveryBegun(self._recover_by)
