"""Controller service: wires journal, core, streams, timers and chores; starts and stops them."""

import asyncio
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_common.version import VERSION
from everstep_controller.action_executor import (
    ActionExecutor,
    ActionTargets,
    EventFollower,
    RuntimeVaultPort,
    SessionAcknowledger,
)
from everstep_controller.api.admin.admin_api import AdminApi
from everstep_controller.api.admin.queries import AdminSources
from everstep_controller.api.admin.servicer import AdminServicer
from everstep_controller.api.fleet.agent_streams import AgentStreams, StreamCollaborators
from everstep_controller.api.fleet.servicer import FleetServicer
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.api.server import make_server
from everstep_controller.config import ControllerConfig
from everstep_controller.core.events import (
    ControllerStarted,
    DriverReported,
    Event,
    RecoveryBegun,
    SettingsApplied,
    TimerDue,
)
from everstep_controller.core.jobs.progress_rows import ProgressRows, reporters
from everstep_controller.core.model.isolation import DriverRecord, Hold
from everstep_controller.core.model.state import State
from everstep_controller.drivers.drivers import configured_drivers
from everstep_controller.drivers.worker import CoreLink, DriverWorkers
from everstep_controller.journal.group_commit import GroupCommit, JournalFull
from everstep_controller.journal.store import JournalStore
from everstep_controller.judge_runner import JudgeRunner
from everstep_controller.judging.judge import Judge
from everstep_controller.metrics.collector import ControllerCollector, Counts, MetricsServer
from everstep_controller.records.intake import Intake
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.controller_findings import ShellTrouble
from everstep_controller.runtime.fold import CoreFactory, Fold
from everstep_controller.runtime.housekeeping import Housekeeping, Retention, make_scheduler
from everstep_controller.runtime.runtime import Journaling, Runtime
from everstep_controller.runtime.timers import Timers
from everstep_controller.runtime.vault_service import VaultService
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages
from everstep_controller.telemetry.samples import SampleRing

logger = logging.getLogger(__name__)

_TICK_S = 0.1
_STOP_S = 2.0
_SECRET = "transfer secret"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a start besides the configuration: the core's factory, recovery, judges."""

    core_factory: CoreFactory
    recover_by: str = ""
    judges: tuple[Judge, ...] = ()


class Controller:
    """Controller of one process; made on a running loop by the holder of the journal's lock."""

    def __init__(self, config: ControllerConfig, options: Options) -> None:
        """Open the journal and fold it. Raises sqlite3.Error, SchemaError, ListenError."""
        self._config = config
        self._recover_by = options.recover_by
        self._history, secret = _open(config.journal)
        self._fold = Fold(options.core_factory, self._history)
        recorded = self._history.last_decision()
        self._unrecorded = [taken for taken in self._fold.replay() if taken.seq > recorded]
        clock = ControllerClock(self._history.last()[1] + 1)
        runtime = self.runtime = Runtime(self._fold, clock)
        self._journal = GroupCommit(lambda: JournalStore(config.journal), runtime)
        sessions = self._sessions = Sessions()
        port = RuntimeVaultPort(self._state, secret, sessions, runtime)
        vault = self._vault = VaultService(self._state, port)
        self._timers = Timers(clock.now_ns, lambda name: runtime.post(TimerDue(name)))
        self._drivers = self._make_drivers()
        targets = ActionTargets(sessions, self._timers, self._drivers, vault)
        self._executor = ActionExecutor(self._state, secret, targets)
        progress = ProgressRows(
            lambda job: reporters(self._fold.state, job), vault.recoverable_step
        )
        self._intake = Intake(
            runtime, progress, SessionAcknowledger(sessions), self._history.marks()
        )
        samples, kernel = SampleRing(config.samples_window), NewestKernelMessages()
        self._streams = AgentStreams(
            StreamCollaborators(runtime, sessions, self._intake, vault, samples, kernel)
        )
        follower = EventFollower(self._state, targets, self._resume, self._streams.peers_changed)
        runtime.listen(follower.follow)
        self._judging = JudgeRunner(runtime, sessions, samples, options.judges)
        sources = AdminSources(runtime, sessions, kernel, self._history, vault, self._trouble)
        self._server, self.port = make_server(
            config.listen,
            config.tls,
            FleetServicer(self._streams),
            AdminServicer(AdminApi(sources)),
        )
        retention = Retention(config.events_retention_days, config.announcements_retention_days)
        self._housekeeping = Housekeeping(runtime, self._journal, retention)
        self._scheduler = make_scheduler(
            self._housekeeping.chores(), config.state_snapshot_interval_s
        )
        self._metrics: MetricsServer | None = None
        self.metrics_port = 0
        self._tickers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take up work. Raises JournalFull, and OSError for the address of the metrics."""
        self._journal.start(self._history.last()[0])
        journaling = Journaling(self._journal.append, self._journal.write)
        last_line = self._history.last_announcement()
        self.runtime.begin(journaling, self._executor.act, last_line)
        self.runtime.adopt(self._unrecorded)
        # Agents may come at once: the journal has all of these before their first word.
        begun = [self.runtime.submit(event) for event in self._first_events()]
        await self._server.start()
        await asyncio.gather(*begun)
        self.runtime.act_on_what_is_due()
        self._start_metrics()
        self._scheduler.start()
        self._drivers.start()
        judging = self._judging.run(self._config.judge_interval_s)
        self._tickers = [
            asyncio.create_task(self._tick(), name="progress ticker"),
            asyncio.create_task(judging, name="judges"),
        ]

    def _first_events(self) -> Iterator[Event]:
        """Yield what this process begins with."""
        yield ControllerStarted(VERSION)
        settings = replace(self._config.core.settings(), isolation_drivers=self._drivers.names)
        if settings != self._state().settings:
            yield SettingsApplied(settings)
        if self._recover_by:
            yield RecoveryBegun(self._recover_by)

    async def stop(self) -> None:
        """End the streams, write everything down, and leave a snapshot for the next start."""
        for ticker in self._tickers:
            ticker.cancel()
        if self._tickers:
            self._scheduler.shutdown(wait=False)
        await self._drivers.stop()
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)
        self._streams.stop()
        await self._server.stop(_STOP_S)
        self._timers.stop()
        self._intake.flush_all()
        await self._housekeeping.roll_up_ledgers()
        await self._housekeeping.snapshot()
        self._history.close()
        await self._journal.stop()

    def _state(self) -> State:
        return self._fold.state

    def _make_drivers(self) -> DriverWorkers:
        config, link = self._config.drivers, CoreLink(self._driver_record, self._report)
        drivers = configured_drivers(config, self._remembered_holds)
        return DriverWorkers(drivers, link, config.timing())

    def _driver_record(self, driver: str) -> DriverRecord | None:
        # While the core acts on nothing, it takes no readings either.
        return None if self._state().halted else self._state().drivers.get(driver)

    def _remembered_holds(self, driver: str) -> dict[str, Hold]:
        record = self._state().drivers.get(driver)
        known = record.nodes.items() if record is not None else ()
        return {node: one.hold for node, one in known if one.hold is not None}

    async def _report(self, event: DriverReported) -> None:
        try:
            await self.runtime.submit(event)
        except JournalFull:
            self.runtime.post(event)  # it is kept until the journal can be written again

    def _resume(self) -> None:
        """The core acts again: do what is due, and hear every agent anew."""
        self._timers.keep_only(self._state().timers)
        self.runtime.act_on_what_is_due()
        self._streams.restart_streams("the controller acts again; connect anew")

    def _start_metrics(self) -> None:
        if not self._config.metrics:
            return
        collector = ControllerCollector(
            self._state, self._counts, self._vault, asyncio.get_running_loop()
        )
        self._metrics = MetricsServer(self._config.metrics, self._config.tls, collector)
        self.metrics_port = self._metrics.port

    def _counts(self) -> Counts:
        runtime = self.runtime
        return Counts(
            streams=len(self._sessions),
            events=runtime.events_taken,
            rejected=runtime.events_rejected,
            journal_full=self._journal.full is not None,
            driver_failures=self._drivers.failed_calls,
            now_ns=runtime.now_ns(),
        )

    def _trouble(self) -> ShellTrouble:
        return ShellTrouble(self._journal.full, self._judging.failures)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._intake.tick(self.runtime.now_ns())


def _open(journal: Path) -> tuple[JournalStore, bytes]:
    """Create or migrate the journal; return a connection that only reads, and its secret."""
    store = JournalStore(journal)
    try:
        secret = store.fact(_SECRET)
        if secret is None:
            secret = secrets.token_bytes(32)
            store.begin()
            store.set_fact(_SECRET, secret)
            store.commit()
    finally:
        store.close()
    return JournalStore(journal, read_only=True), secret
