"""A health socket as an agent serves it, over findings that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.health.service import HealthService
from everstep_agent.health.socket import SOCKET_NAME, HealthServer
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.quotas.connection_quota import ConnectionLimit, ConnectionQuota
from everstep_agent.quotas.user_quotas import Quota, UserRefusals
from everstep_agent.sources.source import Source
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry, FindingBook
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Judgement

_NOW = Stamp("boot-1", 3600 * 10**9, 1_767_225_600 * 10**9)


CONNECTIONS_MAX = 32


def user_quota(per_s: float = 0.0) -> ConnectionQuota:
    """Return what each user has of a health socket; 0 a second: any number."""
    clock = asyncio.get_running_loop().time
    limit = ConnectionLimit(CONNECTIONS_MAX, per_s, Quota.HEALTH_CONNECTIONS, Quota.HEALTH_RATE)
    return ConnectionQuota(limit, UserRefusals(clock), clock)


async def no_look() -> list[Judgement]:
    """See nothing."""
    return []


@asynccontextmanager
async def served(
    folder: Path, look: Callable[[], Awaitable[list[Judgement]]], *findings: Finding
) -> AsyncIterator[None]:
    """Serve these findings on the health socket."""
    found = Findings(FindingBook(CONDITIONS), lambda _: None, lambda _: None, lambda: _NOW)
    source = Source(name="host", group="host", interval_s=1.0, look=look)
    held = [BookEntry(finding, _NOW) for finding in findings]
    watch = Watch((source,), found)
    service = HealthService("n1", watch, lambda: held)
    looking = asyncio.create_task(watch.probe_now())
    await asyncio.sleep(0)  # a look that waits for nothing is over then
    server = HealthServer(folder / SOCKET_NAME, service, user_quota())
    task = asyncio.create_task(server.run())
    await server.ready.wait()
    yield
    task.cancel()
    looking.cancel()
    await asyncio.gather(task, looking, return_exceptions=True)
