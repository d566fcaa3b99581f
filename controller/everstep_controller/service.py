"""Controller service: wires journal, core, streams, timers and chores; starts and stops them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everstep_common.clock import boot_ns, stamp_clock
from everstep_common.machine import machine_id
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
from everstep_controller.api.fleet.inspector import Inspector
from everstep_controller.api.fleet.node_questions import NodeQuestions
from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.servicer import FleetServicer
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.api.server import Endpoint, ListenError, make_server
from everstep_controller.collective_looks.look_watch import LookWatch
from everstep_controller.config import ControllerConfig
from everstep_controller.core.events import (
    ClusterNamed,
    ControllerStalled,
    ControllerStarted,
    DriverReported,
    Event,
    RecoveryBegun,
    SettingsApplied,
    TimerDue,
    each_event,
)
from everstep_controller.core.jobs.progress_rows import ProgressRows, reporters
from everstep_controller.core.model.isolation import DriverRecord, Hold
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.drivers.drivers import configured_drivers
from everstep_controller.drivers.worker import CoreLink, DriverWorkers
from everstep_controller.hangs.end_watch import EndWatch
from everstep_controller.hangs.evidence import HangEvidence
from everstep_controller.hangs.hang_watch import HangWatch
from everstep_controller.hangs.notices import HangNotices
from everstep_controller.journal.group_commit import GroupCommit, JournalFull
from everstep_controller.journal.port import JournalBackend, JournalReader, JournalWriter
from everstep_controller.journal.sqlite.journal import SqliteBackend
from everstep_controller.judge_runner import JudgeRunner
from everstep_controller.judge_trials import JudgeTrials
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.judge import Judge
from everstep_controller.judging.link_errors import LinkErrors
from everstep_controller.metrics.collector import ControllerCollector, Counts, MetricsServer
from everstep_controller.records.intake import Intake, origins_of
from everstep_controller.runtime.clock import (
    ControllerClock,
    LastAlive,
    TimelineAnchor,
    resumed_clock,
)
from everstep_controller.runtime.cluster_file import Cluster, ClusterFile, cluster_of
from everstep_controller.runtime.controller_findings import ShellTrouble
from everstep_controller.runtime.fold import CoreFactory, Fold, TakenEvent
from everstep_controller.runtime.housekeeping import Housekeeping, Retention, make_scheduler
from everstep_controller.runtime.judge_failures import JudgeFailures
from everstep_controller.runtime.runtime import Journaling, Runtime
from everstep_controller.runtime.stalls import Absence
from everstep_controller.runtime.timers import Timers
from everstep_controller.runtime.vault_service import VaultService
from everstep_controller.slow_monitor import SlowMonitor
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages
from everstep_controller.telemetry.printed_steps import PrintedSteps
from everstep_controller.telemetry.rank_progress import RankProgressTable
from everstep_controller.telemetry.samples import SampleRing

if TYPE_CHECKING:
    from everstep_controller.api.fleet.stream_certificates import StreamCertificates

logger = logging.getLogger(__name__)

_TICK_S = 0.1
_STOP_S = 2.0
_SECRET = "transfer secret"
# Facts in the journal: the timeline's anchor, and when its controller was last alive.
_ANCHOR, _ALIVE = "timeline anchor", "alive"
_ALIVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a start besides the configuration: the core's factory, recovery, judges, clock."""

    core_factory: CoreFactory
    recover_by: str = ""
    # Where the configuration was read from; the cluster file lies beside it, else the journal.
    config_path: Path | None = None
    judges: tuple[Judge, ...] = ()
    wall_ns: Callable[[], int] = time.time_ns
    # Of the machine's boot, and its clock; "": what the kernel says.
    boot_id: str = ""
    boot_ns: Callable[[], int] = boot_ns


class Controller:
    """Controller of one process; made on a running loop by the holder of the journal's lock."""

    def __init__(self, config: ControllerConfig, options: Options) -> None:
        """Open the journal and fold it. Raises what _open does, UnreadableError, ListenError."""
        self._config = config
        self._recover_by = options.recover_by
        self._cluster_file = ClusterFile(config.cluster_file_beside(options.config_path))
        self._boot_id = options.boot_id or stamp_clock()().boot_id
        self._history, secret = _open(SqliteBackend(config.journal))
        self._fold = Fold(options.core_factory, self._history)
        recorded = self._history.last_decision()
        replayed = list(self._fold.replay())
        known = Cluster(self._fold.state.cluster_id, self._fold.state.term)
        self._cluster = cluster_of(
            known, self._cluster_file.read(), recovering=bool(self._recover_by)
        )
        self._unrecorded = [taken for taken in replayed if taken.seq > recorded]
        clock = self._clock = self._make_clock(options)
        self._away = _time_away(self._history, clock.now_ns())
        runtime = self.runtime = Runtime(self._fold, clock)
        self._journal = GroupCommit(SqliteBackend(config.journal).open_writer, runtime)
        sessions = self._sessions = Sessions()
        vault = self._vault = VaultService(
            self._state, RuntimeVaultPort(self._state, secret, sessions, runtime)
        )
        self._timers = Timers(
            clock.now_ns,
            due=lambda name: runtime.post(TimerDue(name)),
            stalled=lambda stall: runtime.post(ControllerStalled(stall.duration_ns)),
        )
        self._drivers = self._make_drivers()
        targets = ActionTargets(
            sessions,
            RollCalls(self._state, sessions, runtime.post),
            self._timers,
            self._drivers,
            vault,
        )
        self._executor = ActionExecutor(self._state, secret, targets)
        progress = ProgressRows(
            lambda job: reporters(self._fold.state, job), vault.recoverable_step
        )
        self._intake = Intake(
            runtime, progress, SessionAcknowledger(sessions), _marks(self._history, replayed)
        )
        questions = NodeQuestions(sessions)
        samples, gpus = SampleRing(config.samples_window), GpuSamples()
        links, ranks, kernel = LinkErrors(), RankProgressTable(), NewestKernelMessages()
        self._certificates = _certificates(sessions, config.tls.ca)
        self._streams = AgentStreams(
            StreamCollaborators(
                runtime=runtime,
                sessions=sessions,
                rolls=targets.rolls,
                intake=self._intake,
                vault=vault,
                samples=samples,
                gpus=gpus,
                links=links,
                ranks=ranks,
                kernel=kernel,
                questions=questions,
                certificate_trouble=(
                    self._certificates.trouble if self._certificates else lambda _: ""
                ),
            )
        )
        follower = EventFollower(
            self._state,
            targets,
            self._streams.tell_halt,
            self._resume,
            self._streams.peers_changed,
        )
        runtime.listen(follower.follow)
        runtime.listen(self._streams.note_event)
        inspector, evidence = Inspector(questions), HangEvidence(config.hang_evidence)
        failures = self._judge_failures = JudgeFailures(self._state, clock.now_ns, runtime.announce)
        self._hangs, self._ends, self._trials = (
            HangWatch(runtime, inspector, evidence, failures),
            EndWatch(runtime, inspector, evidence, failures),
            JudgeTrials(evidence, failures),
        )
        runtime.listen(self._ends.note_event)
        runtime.listen(HangNotices(runtime, sessions).note_event)
        looks = self._looks = LookWatch(runtime, inspector, evidence, sessions, failures)
        self._slow = SlowMonitor(runtime, ranks, failures, looks.roles)
        self._judging = JudgeRunner(
            runtime, sessions, samples, gpus, links, options.judges, failures
        )
        sources = AdminSources(
            runtime=runtime,
            sessions=sessions,
            kernel=kernel,
            history=self._history,
            vault=vault,
            questions=questions,
            inspector=inspector,
            slowness=self._slow.finding,
            collectives=looks.newest_look,
            trouble=self._trouble,
            printed=PrintedSteps(ranks, clock.now_ns).of_job,
        )
        endpoint = Endpoint(listen=config.listen, tls=config.tls, secret_file=config.secret_file)
        self._guard = endpoint.guard()
        self._server, self.port = make_server(
            endpoint,
            self._guard,
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
        """Take up work. Raises JournalFull, and ListenError for the address of the metrics."""
        self._start_metrics()
        self._journal.start(self._history.last()[0])
        journaling = Journaling(self._journal.append, self._journal.write)
        last_line = self._history.last_announcement()
        self.runtime.begin(journaling, self._executor.act, last_line)
        self.runtime.adopt(self._unrecorded)
        self._keep_clock()
        self._timers.watch_loop(self._away)
        beginning = [self.runtime.submit(event) for event in self._first_events()]
        # What agents say is journaled behind these, so that they need not wait for them to connect.
        await self._server.start()
        try:
            await asyncio.gather(*beginning)
        except JournalFull:
            await self._server.stop(None)
            self._timers.stop()
            await self._stop_metrics()
            await self._journal.stop()
            raise
        self.runtime.report_rejections(self._unrecorded)
        self._keep_cluster()
        self.runtime.act_on_what_is_due()
        self._scheduler.start()
        self._drivers.start()
        judging = self._judging.run(self._config.judge_interval_s)
        hangs = self._hangs.run()
        looks = self._looks.run()
        self._tickers = [
            asyncio.create_task(self._tick(), name="progress ticker"),
            asyncio.create_task(judging, name="judges"),
            asyncio.create_task(hangs, name="hang watch"),
            asyncio.create_task(looks, name="collective looks"),
            asyncio.create_task(self._slow.run(), name="slow monitor"),
            asyncio.create_task(self._ends.run(), name="end watch"),
            asyncio.create_task(self._trials.run(), name="judge trials"),
            asyncio.create_task(self._keep_alive(), name="time alive"),
        ]
        if self._certificates is not None:
            renewals = self._certificates.run()
            self._tickers.append(asyncio.create_task(renewals, name="stream certificates"))

    async def failure(self) -> str:
        """Wait until a part ends that never should; return which, and why."""
        parts = {*self._tickers, self._journal.failure}
        done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        part = done.pop()
        name = part.get_name() if isinstance(part, asyncio.Task) else "journal's thread"
        return f"the {name} ended: {part.exception()!r}"

    async def stop(self) -> None:
        """End the streams, write everything down, and leave a snapshot for the next start."""
        for ticker in self._tickers:
            ticker.cancel()
        if self._tickers:
            self._scheduler.shutdown(wait=False)
        await self._drivers.stop()
        await self._stop_metrics()
        self._keep_clock()
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

    def _first_events(self) -> Iterator[Event]:
        """Yield what the core hears before anything of its agents."""
        state, cluster = self._state(), self._cluster
        if self._away is not None:
            yield ControllerStalled(self._away.duration_ns)
        if cluster.id != state.cluster_id or cluster.term > state.term:
            yield ClusterNamed(cluster.id, cluster.term)
        yield ControllerStarted(VERSION, machine_id())
        settings, drivers = self._config.core, self._drivers.names
        if (settings, {*drivers}) != (self._state().settings, {*self._state().drivers}):
            yield SettingsApplied(settings, drivers)
        if self._recover_by:
            yield RecoveryBegun(self._recover_by)

    def _keep_cluster(self) -> None:
        """Write the cluster and its newest term down, outside the journal."""
        state = self._state()
        self._cluster = Cluster(state.cluster_id, max(state.term, self._cluster.term))
        self._cluster_file.write(self._cluster)

    def _make_clock(self, options: Options) -> ControllerClock:
        """Return the clock, which goes on with the timeline of the journal while a job runs."""
        kept = self._history.fact(_ANCHOR)
        last = LastAlive(
            anchor=TimelineAnchor.decode(kept) if kept is not None else None,
            event_ns=self._history.last()[1],
            alive_ns=int(self._history.fact(_ALIVE) or 0),
            job_runs=any(job.state is not JobState.ENDED for job in self._state().jobs.values()),
        )
        return resumed_clock(last, self._boot_id, options.wall_ns, options.boot_ns)

    def _keep_clock(self) -> None:
        """Write down the timeline, and how far on it this controller was alive."""
        now_ns = self._clock.now_ns()
        anchor = self._clock.anchor(self._boot_id, self._sessions.witnesses(now_ns))

        def keep(store: JournalWriter) -> None:
            store.set_fact(_ANCHOR, anchor.encode())
            store.set_fact(_ALIVE, str(now_ns).encode())

        self._journal.write(keep)

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(_ALIVE_S)
            self._keep_clock()

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
        self._keep_cluster()
        self.runtime.act_on_what_is_due()
        self._streams.restart_streams("the controller acts again; connect anew")

    def _start_metrics(self) -> None:
        if not self._config.metrics:
            return
        collector = ControllerCollector(
            self._state, self._counts, self._vault, asyncio.get_running_loop()
        )
        address = self._config.metrics
        try:
            self._metrics = MetricsServer(address, self._config.tls, collector)
        except OSError as error:
            raise ListenError(
                f"metrics: {address} cannot be listened on: {error.strerror or error}; "
                "'ss -ltnp' shows who uses the port"
            ) from error
        self.metrics_port = self._metrics.port

    async def _stop_metrics(self) -> None:
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)

    def _counts(self) -> Counts:
        runtime = self.runtime
        return Counts(
            streams=len(self._sessions),
            stalls=self._timers.stalls,
            events=runtime.events_taken,
            rejected=runtime.events_rejected,
            journal_full=self._journal.full is not None,
            driver_failures=self._drivers.failed_calls,
            unauthenticated=self._guard.refused if self._guard else 0,
            now_ns=runtime.now_ns(),
        )

    def _trouble(self) -> ShellTrouble:
        return ShellTrouble(self._journal.full, self._judge_failures.open_failures())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._intake.tick(self.runtime.now_ns())


def _certificates(sessions: Sessions, authority: Path | None) -> "StreamCertificates | None":
    """Return what ends streams whose certificates count no more; None without TLS."""
    if authority is None:
        return None
    # What reads certificates takes 0.2 s to import, which a controller without TLS need not wait.
    from everstep_controller.api.fleet.stream_certificates import StreamCertificates

    return StreamCertificates(sessions, authority)


def _time_away(history: JournalReader, now_ns: int) -> Absence | None:
    """Return the time since a controller with this journal was last alive; None before the first.

    It is what its newest event says, or what it wrote down for this every few seconds.
    """
    last_ns = history.last()[1]
    alive_ns = int(history.fact(_ALIVE) or 0)
    began_ns = max(last_ns, min(alive_ns, now_ns))
    return Absence(began_ns, now_ns) if last_ns else None


def _marks(history: JournalReader, replayed: Iterable[TakenEvent]) -> dict[str, int]:
    """Return how far each outbox was taken: not what came to nothing because the core was halted.

    That is journaled when it happens, but for the last of it if the controller was killed then.
    """
    marks = history.marks()
    for taken in replayed:
        told = each_event(taken.event) if taken.ignored else ()
        for origin in (origin for event in told for origin in origins_of(event)):
            before = origin.sequence - 1
            marks[origin.outbox] = min(marks.get(origin.outbox, before), before)
    return marks


def _open(backend: JournalBackend) -> tuple[JournalReader, bytes]:
    """Create or migrate the journal; return a connection that only reads, and its secret.

    Raises what the backend does; nothing of the journal is changed then.
    """
    backend.verify()
    with closing(backend.open_writer()) as store:
        store.verify()
        secret = store.fact(_SECRET)
        if secret is None:
            secret = secrets.token_bytes(32)
            with store.transaction():
                store.set_fact(_SECRET, secret)
    return backend.open_reader(), secret
