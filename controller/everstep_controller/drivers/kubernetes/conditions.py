"""Conditions of nodes: every node that Everstep knows says whether Everstep withholds it, and when.

The heartbeat of a condition tells that a controller is there. Heartbeats of a fleet are spread, and
never more than so many a second; what has changed goes before them.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from everstep_controller.drivers.kubernetes.api_server import APPLY_PATCH, ApiError, ApiServer, Call
from everstep_controller.drivers.kubernetes.marks import (
    CONDITION,
    FIELD_MANAGER,
    NodeView,
    Told,
    view_of,
)
from everstep_controller.drivers.kubernetes.nodes import NODES, Nodes
from everstep_controller.drivers.kubernetes.objects import Node, UnusableError, decoded

logger = logging.getLogger(__name__)

_AT_ONCE = 2
_PAUSE_S = 1.0
_FAILED_S = 5.0
# So many nodes are looked at between two turns of the event loop.
_SLICE = 200
# Answers to a write on a node that is gone, or has another uid by now.
_OTHER_NODE = (404, 409, 422)
# Whoever reads the driver is told of a failure that lasts so long.
_TOLD_AFTER_S = 60.0
# The server's clock by its answers is as good as a second; a heartbeat past this is of no clock.
_SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class WantedCondition:
    """Wanted condition of a node."""

    isolated: bool
    told: Told

    @property
    def status(self) -> str:
        """Return its status."""
        return str(self.isolated)


def due_in_s(view: NodeView, wanted: WantedCondition, now_s: float, heartbeat_s: float) -> float:
    """Return in how many seconds a node's condition is to be written; 0: it says something else."""
    now = view.isolated
    if now is None or now.status != wanted.status:
        return 0.0
    if (now.reason, now.message) != (wanted.told.reason, wanted.told.message):
        return 0.0
    beaten_s = seconds(now.last_heartbeat_time)
    if beaten_s is None or beaten_s > now_s + _SKEW_S:
        return 0.0
    return max(0.0, beaten_s + heartbeat_s - now_s)


def seconds(timestamp: str | None) -> float | None:
    """Return a time of Kubernetes in seconds since 1970; None for none, or for no time."""
    try:
        return datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return None


def condition_call(view: NodeView, wanted: WantedCondition, now_s: float) -> Call:
    """Return the request that writes a node's condition.

    It is an apply of this one condition, on the status of this very node: conditions are a map by
    their types, so that those of others stay, and a node that was made anew refuses it by its uid.
    """
    now = datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    had = view.isolated
    is_same = had is not None and had.status == wanted.status
    since = (had.last_transition_time if had is not None and is_same else None) or now
    condition = {
        "type": CONDITION,
        "status": wanted.status,
        "reason": wanted.told.reason,
        "message": wanted.told.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
    return Call(
        verb="patch",
        resource="nodes/status",
        method="PATCH",
        path=f"{NODES}/{view.name}/status",
        params={"fieldManager": FIELD_MANAGER, "force": "true"},
        content_type=APPLY_PATCH,
        body={
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": view.name, "uid": view.uid},
            "status": {"conditions": [condition]},
        },
    )


async def write_condition(
    server: ApiServer, nodes: Nodes, view: NodeView, wanted: WantedCondition
) -> None:
    """Write a node's condition, and keep what the server answers. Raises ApiError."""
    now_s = server.now_s()
    if now_s is None:
        raise ApiError("the API server has not told its time")
    call = condition_call(view, wanted, now_s)
    try:
        nodes.keep(view_of(decoded(await server.send(call), Node, "the node")))
    except UnusableError as error:
        raise ApiError(f"{call}: {error}") from error


class ConditionWriter:
    """Writes conditions that differ or whose heartbeat is due; ``run`` is its task."""

    def __init__(
        self,
        server: ApiServer,
        nodes: Nodes,
        wanted: Callable[[NodeView], WantedCondition | None],
        heartbeat_s: float,
        writes_per_s: int,
    ) -> None:
        self._server = server
        self._nodes = nodes
        self._wanted = wanted
        self._heartbeat_s = heartbeat_s
        self._writes_per_s = writes_per_s
        # When a node's next heartbeat is due, by the clock of the loop; and the soonest first.
        self._due: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []
        self._differing: set[str] = set()
        self.failure = ""
        self._failing_since = 0.0

    @property
    def trouble(self) -> str:
        """Return why conditions have not been written for a while; empty where they are."""
        failing_s = asyncio.get_running_loop().time() - self._failing_since
        return self.failure if failing_s >= _TOLD_AFTER_S else ""

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            await self._sort_touched()
            begun = asyncio.get_running_loop().time()
            batch = self._take_batch(begun)
            error = await self._write(batch)
            self._told(error)
            spent = asyncio.get_running_loop().time() - begun
            wait_s = max(_FAILED_S, error.retry_after_s) if error is not None else _PAUSE_S
            await asyncio.sleep(max(0.0, wait_s - spent))

    def look_at(self, names: Iterable[str]) -> None:
        """Look at nodes again that others have begun, or ceased, to be known by."""
        self._nodes.touched.update(names)

    # ---------------------------------------------------------------------------------------------

    async def _sort_touched(self) -> None:
        """Sort nodes that were told of by when they are due."""
        while self._nodes.touched and self._server.now_s() is not None:
            for _ in range(min(_SLICE, len(self._nodes.touched))):
                self._sort(self._nodes.touched.pop())
            await asyncio.sleep(0)

    def _sort(self, name: str) -> None:
        view, now_s = self._nodes.views.get(name), self._server.now_s()
        wanted = self._wanted(view) if view is not None else None
        self._differing.discard(name)
        if view is None or wanted is None or now_s is None:
            self._due.pop(name, None)
            return
        in_s = due_in_s(view, wanted, now_s, self._heartbeat_s)
        if in_s <= 0:
            self._differing.add(name)
            self._due.pop(name, None)
            return
        due = asyncio.get_running_loop().time() + in_s
        # An event that is no heartbeat moves it by less than the second that the clock is good for.
        if abs(self._due.get(name, 0.0) - due) > 2.0:
            self._due[name] = due
            heapq.heappush(self._queue, (due, name))

    def _take_batch(self, now: float) -> list[str]:
        """Return which nodes are written next, those that differ first."""
        batch = sorted(self._differing)[: self._writes_per_s]
        self._differing.difference_update(batch)
        while self._queue and self._queue[0][0] <= now and len(batch) < self._writes_per_s:
            due, name = heapq.heappop(self._queue)
            if self._due.get(name) == due:
                del self._due[name]
                batch.append(name)
        return batch

    async def _write(self, batch: Collection[str]) -> ApiError | None:
        """Write these; return an error of one of them, all of which are tried again."""
        limit, errors = asyncio.Semaphore(_AT_ONCE), list[ApiError]()

        async def write(name: str) -> None:
            view = self._nodes.views.get(name)
            wanted = self._wanted(view) if view is not None else None
            if view is None or wanted is None:
                return
            async with limit:
                if errors:
                    self._nodes.touched.add(name)
                    return
                try:
                    await write_condition(self._server, self._nodes, view, wanted)
                except ApiError as error:
                    # One that is gone or was made anew is told of by the watch.
                    if error.code not in _OTHER_NODE:
                        self._nodes.touched.add(name)
                        errors.append(error)

        async with asyncio.TaskGroup() as group:
            for name in batch:
                group.create_task(write(name))
        return errors[0] if errors else None

    def _told(self, error: ApiError | None) -> None:
        failure = str(error) if error is not None else ""
        if failure and failure != self.failure:
            logger.warning("kubernetes: a condition is not written, and tried again: %s", failure)
        if not self.failure:
            self._failing_since = asyncio.get_running_loop().time()
        self.failure = failure
