"""Source of the page: the controller's answers, read in threads, and once a second for all."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from everstep_cli.client.admin import Admin, list_nodes
from everstep_proto.generated import admin_pb2

T = TypeVar("T")
# Answers that are so new are everybody's: fifty browsers ask the controller as one does.
FRESH_S = 1.0
_KEPT_MAX = 256


class Source:
    """Answers of a controller, each kept for a second. Raises AdminError as `Admin` does."""

    def __init__(self, admin: Admin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._now_s = admin, now_s
        self._kept: dict[str, tuple[float, asyncio.Future[Any]]] = {}

    async def read_for_one(self, read: Callable[[Admin], T]) -> T:
        """Return what is for one person alone: it is asked each time, and kept for nobody else."""
        return await asyncio.to_thread(read, self._admin)

    async def nodes(self) -> admin_pb2.ListNodesReply:
        """Return all nodes."""
        return await self._once("nodes", lambda: list_nodes(self._admin))

    async def jobs(self) -> admin_pb2.ListJobsReply:
        """Return all jobs."""
        request = admin_pb2.ListJobsRequest()
        return await self._once(
            "jobs", lambda: self._admin.call(lambda stub: stub.ListJobs, request)
        )

    async def node(self, name: str) -> admin_pb2.NodeDetail:
        """Return everything known of a node."""
        request = admin_pb2.GetNodeRequest(node=name)
        return await self._once(
            f"node {name}", lambda: self._admin.call(lambda stub: stub.GetNode, request, name)
        )

    async def job(self, name: str) -> admin_pb2.JobDetail:
        """Return everything known of a job."""
        request = admin_pb2.GetJobRequest(job=name)
        return await self._once(
            f"job {name}", lambda: self._admin.call(lambda stub: stub.GetJob, request, name)
        )

    async def ledger(self, name: str) -> admin_pb2.Ledger:
        """Return where a job's time went."""
        request = admin_pb2.GetLedgerRequest(job=name)
        return await self._once(
            f"ledger {name}", lambda: self._admin.call(lambda stub: stub.GetLedger, request, name)
        )

    async def why(self, name: str) -> admin_pb2.WhyReply:
        """Return why a node or job is as it is."""
        request = admin_pb2.WhyRequest(name=name)
        return await self._once(
            f"why {name}", lambda: self._admin.call(lambda stub: stub.Why, request, name)
        )

    async def incidents(self) -> admin_pb2.ListIncidentsReply:
        """Return the incidents that the controller lists."""
        request = admin_pb2.ListIncidentsRequest()
        return await self._once(
            "incidents", lambda: self._admin.call(lambda stub: stub.ListIncidents, request)
        )

    async def events(self, subject: str, limit: int) -> list[admin_pb2.Event]:
        """Return the newest events of a subject, oldest first."""
        request = admin_pb2.WatchEventsRequest(subject=subject, limit=limit)

        def read() -> list[admin_pb2.Event]:
            return list(self._admin.stream(lambda stub: stub.WatchEvents, request, subject))

        return await self._once(f"events {subject} {limit}", read)

    async def _once(self, key: str, read: Callable[[], T]) -> T:
        """Return what was read within the last second, or read it."""
        kept = self._kept.get(key)
        if kept is None or self._now_s() - kept[0] > FRESH_S:
            self._forget_old()
            reading = asyncio.ensure_future(asyncio.to_thread(read))
            # Nobody may be there any more when it fails.
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            kept = self._kept[key] = self._now_s(), reading
        # Who goes away must not end it for the others who wait.
        return cast("T", await asyncio.shield(kept[1]))

    def _forget_old(self) -> None:
        now_s = self._now_s()
        self._kept = {key: one for key, one in self._kept.items() if now_s - one[0] <= FRESH_S}
        while len(self._kept) >= _KEPT_MAX:
            self._kept.pop(next(iter(self._kept)))
