"""Source of the page: the controller's answers, read in threads, and once a second for all."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from everstep_cli.client.admin import Admin, AdminError, list_nodes
from everstep_cli.page.roster import Roster, roster_of
from everstep_cli.page.tiles import Tile, troubled
from everstep_proto.generated import admin_pb2

T = TypeVar("T")
# Answers that are so new are everybody's: fifty browsers ask the controller as one does.
FRESH_S = 1.0
_KEPT_MAX = 256
# All nodes are read again after so long, and at once where one comes or goes.
_ROSTER_S = 600.0
# So many in one answer: it is made while the controller does nothing else, in a few milliseconds.
_PAGE = 100


@dataclass(frozen=True, slots=True)
class FleetNow:
    """A fleet as it is now: all nodes, and those that are not simply well, the worst first."""

    roster: Roster
    troubled: dict[str, Tile]
    halted: str
    drivers_paused: str


class Source:
    """Answers of a controller, each kept for a second. Raises AdminError as `Admin` does."""

    def __init__(self, admin: Admin, now_s: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._now_s = admin, now_s
        self._kept: dict[str, tuple[float, asyncio.Future[Any]]] = {}
        self._roster: Roster | None = None
        self._roster_s = 0.0

    async def read_for_one(self, read: Callable[[Admin], T]) -> T:
        """Return what is for one person alone: it is asked each time, and kept for nobody else."""
        return await asyncio.to_thread(read, self._admin)

    def read_ahead(self) -> None:
        """Begin to read all nodes: the first one who looks waits less."""
        asyncio.ensure_future(self.fleet()).add_done_callback(_look_at)

    async def fleet(self) -> FleetNow:
        """Return all nodes; each question is about those alone that are not well."""
        asked = admin_pb2.ListNodesRequest(troubled=True, page_nodes=_PAGE)
        now = await self._once("troubled", lambda: list_nodes(self._admin, asked))
        found, roster = troubled(now.nodes), self._roster
        count = now.summary.fleet_nodes
        known = (
            roster is not None and len(roster.well) == count and found.keys() <= roster.well.keys()
        )
        if roster is None or not known:
            roster = await self._read_roster()
        elif self._now_s() - self._roster_s > _ROSTER_S:
            self._roster_s = self._now_s()
            # Nobody waits for it; where it fails, the next question fails too, and is told.
            asyncio.ensure_future(self._read_roster()).add_done_callback(_look_at)
        return FleetNow(roster, found, now.halted, now.drivers_paused)

    async def _read_roster(self) -> Roster:
        asked = admin_pb2.ListNodesRequest(page_nodes=_PAGE)

        def read() -> Roster:
            return roster_of(list_nodes(self._admin, asked).nodes)

        self._roster = await self._once("roster", read)
        self._roster_s = self._now_s()
        return self._roster

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

    async def steps(self, name: str) -> admin_pb2.Steps:
        """Return the newest steps of a job; none where the controller is older than this page."""
        request = admin_pb2.GetStepsRequest(job=name)

        def read() -> admin_pb2.Steps:
            try:
                return self._admin.call(lambda stub: stub.GetSteps, request, name)
            except AdminError:
                return admin_pb2.Steps()

        return await self._once(f"steps {name}", read)

    async def samples(self, name: str) -> admin_pb2.Samples:
        """Return a node's newest samples; none where the controller is older than this page."""
        request = admin_pb2.GetSamplesRequest(node=name)

        def read() -> admin_pb2.Samples:
            try:
                return self._admin.call(lambda stub: stub.GetSamples, request, name)
            except AdminError:
                return admin_pb2.Samples()

        return await self._once(f"samples {name}", read)

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

    async def history(self, kind: str, key: str) -> list[admin_pb2.HistoryRow]:
        """Return the rows of the history of a kind and key; none where it has none."""
        request = admin_pb2.GetHistoryRequest(kind=kind, key=key)

        def read() -> list[admin_pb2.HistoryRow]:
            try:
                return list(self._admin.stream(lambda stub: stub.GetHistory, request, key))
            except AdminError:
                return []

        return await self._once(f"history {kind} {key}", read)

    async def events(self, subject: str, limit: int, since_ns: int = 0) -> list[admin_pb2.Event]:
        """Return the newest events of a subject, oldest first."""
        request = admin_pb2.WatchEventsRequest(subject=subject, limit=limit, since_ns=since_ns)

        def read() -> list[admin_pb2.Event]:
            return list(self._admin.stream(lambda stub: stub.WatchEvents, request, subject))

        return await self._once(f"events {subject} {limit} {since_ns}", read)

    async def _once(self, key: str, read: Callable[[], T]) -> T:
        """Return what was read within the last second, or read it."""
        kept = self._kept.get(key)
        if kept is None or self._now_s() - kept[0] > FRESH_S:
            self._forget_old()
            reading = asyncio.ensure_future(asyncio.to_thread(read))
            # Nobody may be there any more when it fails.
            reading.add_done_callback(_look_at)
            kept = self._kept[key] = self._now_s(), reading
        # Who goes away must not end it for the others who wait.
        return cast("T", await asyncio.shield(kept[1]))

    def _forget_old(self) -> None:
        now_s = self._now_s()
        self._kept = {key: one for key, one in self._kept.items() if now_s - one[0] <= FRESH_S}
        while len(self._kept) >= _KEPT_MAX:
            self._kept.pop(next(iter(self._kept)))


def _look_at(done: "asyncio.Future[Any]") -> None:
    """Have a failure looked at, so that nothing is said of one that nobody looks at."""
    if not done.cancelled():
        done.exception()
