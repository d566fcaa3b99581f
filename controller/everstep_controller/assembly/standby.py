"""Assembly of a standby: the parts of a controller that answer questions, without acting."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from everstep_common.clock import stamp_clock
from everstep_common.version import VERSION
from everstep_controller.api.admin.controllers import OwnPart
from everstep_controller.api.server import ListenError
from everstep_controller.api.standby_gate import StandbyGate, StandbyView
from everstep_controller.assembly.acting import assemble_acting
from everstep_controller.assembly.enrolment import Enrolment, own_certificate
from everstep_controller.assembly.fleet import assemble_fleet
from everstep_controller.assembly.foundation import Foundation, Options
from everstep_controller.assembly.serving import ServedRole, Serving, assemble_serving
from everstep_controller.assembly.watches import assemble_watches
from everstep_controller.assembly.webhooks import assemble_webhooks
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.journal.group_commit import GroupCommit
from everstep_controller.journal.port import JournalBackend, JournalCandidate, JournalReader
from everstep_controller.journal.reading import JournalReads
from everstep_controller.metrics.role_metrics import role_metrics
from everstep_controller.runtime.clock import ControllerClock
from everstep_controller.runtime.cluster_file import Cluster, ClusterFile, ClusterKeeper, cluster_of
from everstep_controller.runtime.fold import Fold, TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.runtime.timeline import ResumedTimeline, alive_ns
from everstep_controller.standby.following import FollowedJournal, JournalNews
from everstep_controller.standby.standby import Served, Standby, StandbyParts
from everstep_controller.standby.told import ControllerTold, controller_told
from everstep_controller.web.metrics_server import MetricsServer

# Events that are folded at the start, before a signal has its turn.
_IN_A_ROW = 20


def told_of(config: ControllerConfig) -> ControllerTold:
    """Return what this controller tells the others of itself."""
    return ControllerTold(
        address=config.own_address, host=socket.gethostname(), pid=os.getpid(), version=VERSION
    )


def open_standby(
    config: ControllerConfig,
    options: Options,
    backend: JournalBackend,
    candidate: JournalCandidate,
    ready: Callable[[Served], None],
) -> Standby:
    """Return a standby, which has asked nobody yet; ``ready`` is called once it serves."""
    maker = _Maker(config, options, backend)
    return Standby(
        StandbyParts(
            told=told_of(config),
            candidate=candidate,
            open_reader=backend.open_reader,
            follow=maker.follow,
            serve=maker.serve,
            publish=maker.publish,
            note_old_journal=maker.note_old_journal,
            ready=ready,
        )
    )


@dataclass(slots=True)
class _Maker:
    """Maker of what a standby follows and serves, once the journal can be read."""

    config: ControllerConfig
    options: Options
    backend: JournalBackend
    _bases: list[Foundation] = field(default_factory=list)

    async def follow(self, history: JournalReader) -> FollowedJournal:
        """Fold the journal. Raises ConfigError, and what folding does."""
        recorded = history.last_decision()
        fold = Fold(self.options.core_factory, history)
        # Who writes may be dead already, before it has recorded the newest ones.
        unrecorded: list[TakenEvent] = []
        for number, taken in enumerate(fold.replay()):
            if taken.seq > recorded:
                unrecorded.append(taken)
            if not number % _IN_A_ROW:
                await asyncio.sleep(0)
        last_ns = max(history.last()[1], alive_ns(history))
        offset_ns = last_ns - self.options.boot_ns()
        clock = ControllerClock(0, offset_ns, self.options.wall_ns, self.options.boot_ns)
        self._bases.append(self._foundation(fold, history, clock))
        return FollowedJournal(fold, clock, history.last_announcement(), unrecorded)

    def _foundation(self, fold: Fold, history: JournalReader, clock: ControllerClock) -> Foundation:
        """Return what the parts of a controller rest on; nothing is ever journaled through it."""
        file = ClusterFile(self.config.cluster_file_beside(self.options.config_path))
        known = Cluster(fold.state.cluster_id, fold.state.term)
        cluster = cluster_of(known, file.read(), recovering=False)
        runtime = Runtime(fold, clock)
        boot_id = self.options.boot_id or stamp_clock()().boot_id
        return Foundation(
            history=history,
            reads=JournalReads(history.another_reader),
            journal=GroupCommit(self.backend.open_writer, runtime),
            # Nothing is derived from it: nobody is told to send anybody anything.
            secret=secrets.token_bytes(32),
            fold=fold,
            timeline=ResumedTimeline(clock, boot_id),
            runtime=runtime,
            cluster=ClusterKeeper(file, cluster),
            away=None,
            unrecorded=(),
            marks={},
            give_back=lambda: None,
        )

    def publish(self, news: JournalNews) -> None:
        """Have followers of the event list see new lines, and the cluster's term kept."""
        base = self._bases[-1]
        base.runtime.publish_followed(news.lines)
        base.cluster.keep(base.state())

    def note_old_journal(self) -> None:
        """Have the next start act on nothing until a recovery."""
        self._bases[-1].cluster.note_old_journal()

    def serve(self, followed: FollowedJournal) -> "_ServedStandby":
        """Return what answers questions. Raises ListenError."""
        base = self._bases[-1]
        # Nothing of these acts while it stands by: none is told to anybody.
        config = replace(self.config, drivers=DriversConfig(), webhooks={})
        own = OwnPart(told_of(config), is_active=False, hand_over=lambda _: None)
        acting = assemble_acting(config, base)
        fleet = assemble_fleet(config, base, acting)
        watches = assemble_watches(config, (), base, fleet)
        webhooks = assemble_webhooks(config, base)
        gate = StandbyGate(lambda: _view(followed))
        serving = assemble_serving(
            config, base, acting, fleet, watches, webhooks, Enrolment(), ServedRole(own, (gate,))
        )
        return _ServedStandby(config, base, followed, serving)


def _view(followed: FollowedJournal) -> StandbyView:
    writer = followed.writer
    return StandbyView(
        active=controller_told(writer.told).address if writer is not None else "",
        writer=writer.writer if writer is not None else "",
        behind_s=followed.behind_s(),
    )


class _ServedStandby:
    """See Served."""

    def __init__(
        self,
        config: ControllerConfig,
        base: Foundation,
        followed: FollowedJournal,
        serving: Serving,
    ) -> None:
        self._config = config
        self._base = base
        self._followed = followed
        self._serving = serving
        self._metrics: MetricsServer | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """See Served."""
        return self._serving.port

    @property
    def metrics_port(self) -> int:
        """See Served."""
        return self._metrics.port if self._metrics is not None else 0

    async def start(self) -> None:
        """See Served. Raises ListenError."""
        await self._serving.server.start()
        if certificate := own_certificate(self._config):
            certificate.renew_if_due()
            self._renewing = asyncio.create_task(certificate.run(), name="own certificate")
        if self._config.metrics:
            collector = _StandbyCollector(self._followed)
            try:
                self._metrics = MetricsServer(self._config.metrics, self._config.tls, collector)
            except OSError as error:
                raise ListenError(
                    f"metrics: {self._config.metrics} cannot be listened on: "
                    f"{error.strerror or error}; 'ss -ltnp' shows who uses the port"
                ) from error

    async def stop(self) -> None:
        """See Served."""
        if self._renewing is not None:
            self._renewing.cancel()
        await self._serving.server.stop(None)
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.stop)
        await self._base.reads.close()


class _StandbyCollector(Collector):
    """What Prometheus is told by a standby: its role, and how far it is behind."""

    def __init__(self, followed: FollowedJournal) -> None:
        self._followed = followed

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield from role_metrics(
            is_active=False,
            behind_events=self._followed.behind_events,
            behind_s=self._followed.behind_s(),
        )
