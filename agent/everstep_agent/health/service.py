"""Health service of the agent: open findings and one reading of all, on two sockets."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.report import HealthReport, Known, report_on
from everstep_agent.health.socket import SOCKET_NAME, HealthServer
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.quotas.connection_quota import ConnectionLimit, ConnectionQuota
from everstep_agent.quotas.user_quotas import Quota, UserRefusals
from everstep_agent.sources.source import ProbeResult
from everstep_common.judging.book import BookEntry, FindingBook

# Callers within this time share one look: nobody on the node can make the agent work harder, and
# some sources start a vendor's tool. The open findings are those of the moment, however.
_FRESH_S = 5.0


class HealthService:
    """Service that answers how healthy the node is. Event loop only."""

    def __init__(
        self, node: str, watch: Watch, open_findings: Callable[[], Sequence[BookEntry]]
    ) -> None:
        # Returns what parts a source cannot read, in words, by the source's name.
        self.blind: Callable[[], Mapping[str, str]] = dict
        self._node = node
        self._watch = watch
        self._open_findings = open_findings
        self._looking: asyncio.Task[Sequence[ProbeResult]] | None = None
        self._looks: Sequence[ProbeResult] = ()
        self._looked_at = float("-inf")

    async def report(self, groups: Iterable[str], patience_s: float) -> HealthReport:
        """Return how the node is, after at most ``patience_s`` for a look at everything.

        A look that takes longer goes on by itself: to cancel it would make a slow probe look hung.
        """
        looks = await self._look(patience_s)
        late = "" if looks else f"a look at the node took longer than {patience_s:g} s"
        known = Known(
            node=self._node,
            asked="agent",
            findings=self._open_findings(),
            looks=looks or self._looks,
            probes={source.name: source.group for source in self._watch.sources},
            notes=(late,) if late else (),
            blind=self.blind(),
        )
        return report_on(known, groups)

    async def _look(self, patience_s: float) -> Sequence[ProbeResult]:
        """Return the looks of a few seconds ago; none when they do not come in time."""
        loop = asyncio.get_running_loop()
        if self._looking is None:
            if loop.time() - self._looked_at < _FRESH_S:
                return self._looks
            self._looking = loop.create_task(self._look_at_all(), name="health-look")
        done, _ = await asyncio.wait({self._looking}, timeout=patience_s)
        return self._looks if done else ()

    async def _look_at_all(self) -> Sequence[ProbeResult]:
        try:
            self._looks = await self._watch.probe_now()
            return self._looks
        finally:
            self._looked_at = asyncio.get_running_loop().time()
            self._looking = None


class HealthSockets:
    """Two tasks for the daemon: the fault of one does not silence the other."""

    def __init__(
        self, config: AgentConfig, node: NodeWatch, book: FindingBook, refusals: UserRefusals
    ) -> None:
        self._config = config
        self._refusals = refusals
        self._service = HealthService(config.node_name, node.watch, lambda: book.open_findings)
        self._service.blind = lambda: node.view.blind

    async def own(self) -> None:
        """Answer `everstep-agent check`. Raises OSError when the socket cannot be made."""
        path = self._config.jobs.runtime_folder / SOCKET_NAME
        await HealthServer(path, self._service, self._quota()).run()

    async def nvhcd(self) -> None:
        """Answer ft_launcher, unless that is switched off. Raises OSError."""
        path = self._config.health_check_path
        if path is None:
            await asyncio.Event().wait()
            return
        from everstep_agent.health.nvhcd import HealthCheckServer

        await HealthCheckServer(path, self._service, self._quota()).run()

    def _quota(self) -> ConnectionQuota:
        """Return what each user may have of one of the sockets."""
        limit = ConnectionLimit(
            self._config.health_connections_per_user_max,
            self._config.health_questions_per_user_per_s,
            Quota.HEALTH_CONNECTIONS,
            Quota.HEALTH_RATE,
        )
        return ConnectionQuota(limit, self._refusals, asyncio.get_running_loop().time)
