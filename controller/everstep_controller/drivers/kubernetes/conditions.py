"""Conditions of nodes: every node that Everstep knows says whether Everstep withholds it, and when.

The heartbeat of a condition tells that a controller is there. Heartbeats of a fleet are spread, and
never more than so many a second; what has changed goes before them.
"""

import asyncio
import heapq
import itertools
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
_SLICE = 100
# Answers that are of one node: it is gone, was made anew, or something in the cluster forbids this
# very write. All others are of the server, and end a batch.
_GONE = 404
_OF_A_NODE = (400, 409, 422)
# A node whose condition was written is left alone for so long unless there is something else to
# say of it: two who write over one another would do so for ever.
_REWRITE_S = 30.0
# One whose condition could not be written, so that it keeps no others waiting; and one that itself
# refuses it.
_AGAIN_S = 10.0
_REFUSED_S = 60.0
_LOGGED_S = 600.0
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
        # What was written of a node last, by its uid, and until when it is left alone so.
        self._written: dict[str, tuple[str, WantedCondition, float]] = {}
        # Nodes that refuse theirs, with why.
        self._refused: dict[str, str] = {}
        # Nodes whose conditions are being written, and whether one of these writes has ended.
        self._writing: set[str] = set()
        self._ended = asyncio.Event()
        self.failure = ""
        self._failing_since = 0.0
        # When a failure was logged last, by the code of its answer.
        self._logged_at: dict[int, float] = {}

    @property
    def trouble(self) -> str:
        """Return why conditions have not been written for a while; empty where they are."""
        failing_s = self._now() - self._failing_since
        return self.failure if failing_s >= _TOLD_AFTER_S else ""

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            await self._sort_touched()
            begun = self._now()
            batch = self._take_batch(begun)
            error = await self._write(batch)
            self._told(error, has_written=bool(batch))
            spent = self._now() - begun
            wait_s = max(_FAILED_S, error.retry_after_s) if error is not None else _PAUSE_S
            await asyncio.sleep(max(0.0, wait_s - spent))

    def is_due(self, view: NodeView, wanted: WantedCondition) -> bool:
        """Return whether a node's condition says something else, or is old."""
        now_s = self._server.now_s()
        return now_s is None or due_in_s(view, wanted, now_s, self._heartbeat_s) <= 0

    async def settle(self, name: str) -> None:
        """Wait for a write of a node's condition that is under way: it may say what was so before.

        One that begins later says what the node is then.
        """
        while name in self._writing:
            self._ended.clear()
            await self._ended.wait()

    def look_at(self, names: Iterable[str]) -> None:
        """Look at nodes again that others have begun, or ceased, to be known by."""
        self._nodes.touched.update(names)

    # ---------------------------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

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
            self._written.pop(name, None)
            self._refused.pop(name, None)
            return
        in_s, now = due_in_s(view, wanted, now_s, self._heartbeat_s), self._now()
        uid, told, until = self._written.get(name, ("", None, 0.0))
        if (uid, told) == (view.uid, wanted):
            in_s = max(in_s, until - now)
        if in_s <= 0:
            self._differing.add(name)
            self._due.pop(name, None)
            return
        # An event that is no heartbeat moves it by less than the second that the clock is good for.
        due = now + in_s
        if abs(self._due.get(name, 0.0) - due) > 2.0:
            self._due[name] = due
            heapq.heappush(self._queue, (due, name))

    def _take_batch(self, now: float) -> list[str]:
        """Return which nodes are written next, those that differ first."""
        batch = list(itertools.islice(self._differing, self._writes_per_s))
        self._differing.difference_update(batch)
        while self._queue and self._queue[0][0] <= now and len(batch) < self._writes_per_s:
            due, name = heapq.heappop(self._queue)
            if self._due.get(name) == due:
                del self._due[name]
                batch.append(name)
        return batch

    async def _write(self, batch: Collection[str]) -> ApiError | None:
        """Write these until one fails; return why. What was not written is tried again."""
        left, errors = iter(batch), list[ApiError]()

        async def write_some() -> None:
            for name in left:
                try:
                    await self._write_one(name)
                except ApiError as error:
                    self._nodes.touched.update((name, *left))
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(batch))):
                group.create_task(write_some())
        return errors[0] if errors else None

    async def _write_one(self, name: str) -> None:
        """Write a node's condition. Raises ApiError where that is no matter of this node."""
        view = self._nodes.views.get(name)
        wanted = self._wanted(view) if view is not None else None
        if view is None or wanted is None:
            return
        self._writing.add(name)
        try:
            await write_condition(self._server, self._nodes, view, wanted)
            self._written[name] = (view.uid, wanted, self._now() + _REWRITE_S)
            self._refused.pop(name, None)
        except ApiError as error:
            if error.code == _GONE:
                return  # as the watch tells
            is_refused = error.code in _OF_A_NODE
            wait_s = _REFUSED_S if is_refused else _AGAIN_S
            self._written[name] = (view.uid, wanted, self._now() + wait_s)
            if not is_refused:
                raise
            self._note_refusal(name, str(error))
        finally:
            self._writing.discard(name)
            self._ended.set()

    def _note_refusal(self, name: str, sentence: str) -> None:
        self._nodes.touched.add(name)
        if self._refused.get(name) != sentence:
            logger.warning(
                "kubernetes: the condition of %s is not written, and tried again: %s",
                name,
                sentence,
            )
        self._refused[name] = sentence

    def _told(self, error: ApiError | None, *, has_written: bool) -> None:
        now = self._now()
        if error is None:
            if has_written or not self._due:
                self.failure = ""
            return
        if now - self._logged_at.get(error.code, -_LOGGED_S) >= _LOGGED_S:
            self._logged_at[error.code] = now
            logger.warning("kubernetes: a condition is not written, and tried again: %s", error)
        if not self.failure:
            self._failing_since = now
        self.failure = str(error)
