"""Health service of the agent: open findings and the newest readings, on two sockets."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.devices import devices_that_answer
from everstep_agent.health.report import BudgetAnswer, HealthReport, Known, report_on
from everstep_agent.health.socket import SOCKET_NAME, HealthServer
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.quotas.connection_quota import ConnectionLimit, ConnectionQuota
from everstep_agent.quotas.user_quotas import Quota, UserRefusals
from everstep_common.judging.book import BookEntry, FindingBook


class HealthService:
    """Service that answers how healthy the node is, from the agent's book. Event loop only.

    It looks at nothing: the sources are read in their own rhythm, and many may ask.
    """

    def __init__(
        self, node: str, watch: Watch, open_findings: Callable[[], Sequence[BookEntry]]
    ) -> None:
        # Returns what parts a source cannot read, in words, by the source's name.
        self.blind: Callable[[], Mapping[str, str]] = dict
        # Return how many devices answer, and the controller's word on failed prolog scripts.
        self.answered: Callable[[], tuple[str, ...]] = tuple
        self.budget_answer: Callable[[], BudgetAnswer | None] = lambda: None
        self._node = node
        self._watch = watch
        self._open_findings = open_findings

    def report(self, groups: Iterable[str]) -> HealthReport:
        """Return how the node is, as far as the agent knows by now."""
        known = Known(
            node=self._node,
            asked="agent",
            findings=self._open_findings(),
            looks=self._watch.latest(),
            probes={source.name: source.group for source in self._watch.sources},
            blind=self.blind(),
            answered=self.answered(),
            budget_answer=self.budget_answer(),
        )
        return report_on(known, groups)


class HealthSockets:
    """Two tasks for the daemon: the fault of one does not silence the other."""

    def __init__(
        self,
        config: AgentConfig,
        node: NodeWatch,
        book: FindingBook,
        refusals: UserRefusals,
        budget_answer: Callable[[], BudgetAnswer | None],
    ) -> None:
        self._config = config
        self._refusals = refusals
        self._service = HealthService(config.node_name, node.watch, lambda: book.open_findings)
        self._service.blind = lambda: node.view.blind
        self._service.answered = lambda: devices_that_answer(node.view)
        self._service.budget_answer = budget_answer

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
