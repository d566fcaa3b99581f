"""Health sockets: serve the agent's own protocol and that of ft_launcher, each as a task."""

import asyncio

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.desk import HealthDesk
from everstep_agent.health.socket import SOCKET_NAME, HealthServer
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_common.judging.book import FindingBook


class HealthSockets:
    """Two tasks for the daemon: the fault of one does not silence the other."""

    def __init__(self, config: AgentConfig, node: NodeWatch, book: FindingBook) -> None:
        self._config = config
        self._desk = HealthDesk(config.node_name, node.watch, lambda: book.open_findings)
        self._desk.blind = lambda: node.view.blind

    async def own(self) -> None:
        """Answer `everstep-agent check`. Raises OSError when the socket cannot be made."""
        path = self._config.jobs.runtime_folder / SOCKET_NAME
        await HealthServer(path, self._desk).run()

    async def nvhcd(self) -> None:
        """Answer ft_launcher, unless that is switched off. Raises OSError."""
        path = self._config.health_check_path
        if path is None:
            await asyncio.Event().wait()
            return
        from everstep_agent.health.nvhcd import HealthCheckServer

        await HealthCheckServer(path, self._desk).run()
