"""Kubernetes driver: holds are read from nodes that a watch keeps, and made with a taint."""

import asyncio
import logging
import random
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import TypeVar

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.kubernetes.access_review import missing_rights
from everstep_controller.drivers.kubernetes.api_server import (
    MERGE_PATCH,
    ApiError,
    ApiServer,
    Call,
)
from everstep_controller.drivers.kubernetes.conditions import (
    ConditionWriter,
    WantedCondition,
    seconds,
    write_condition,
)
from everstep_controller.drivers.kubernetes.evictions import Evictions, name_of, pods_on
from everstep_controller.drivers.kubernetes.marks import (
    FIELD_MANAGER,
    TAINT,
    Change,
    Marking,
    NodeView,
    Told,
    foreign_hold,
    has_stale_marks,
    hold_of,
    is_of_another,
    is_ours,
    patch_of,
    plain,
    strongest,
    told_by,
    told_of,
    view_of,
)
from everstep_controller.drivers.kubernetes.nodes import NODES, Nodes
from everstep_controller.drivers.kubernetes.objects import (
    Lease,
    Node,
    UnusableError,
    decoded,
)
from everstep_controller.drivers.kubernetes.rights import Right
from everstep_controller.drivers.port import (
    Applied,
    DriverContext,
    DriverError,
    DriverView,
    SchedulerNode,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# Each connection is a handshake of some milliseconds on the loop.
_AT_ONCE = 4
# Of the deadline of a call: what is not done by then is answered as such, and what is done counts.
_SHARE = 0.8
_TRIES = 6
_CONFLICT, _GONE, _FORBIDDEN = 409, 404, 403
# Of so many nodes the lease is read, or the pods, at a reading.
_ASKED_MAX = 200
# So many nodes are looked at between two turns of the event loop.
_SLICE = 200
# A name of a node: a subdomain of DNS, and never more than one part of a path.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_WORK_MAX = 20


@dataclass(frozen=True, slots=True)
class Policy:
    """What the driver does beside the taint and the condition."""

    rights: tuple[Right, ...]
    heartbeat_s: float = 300.0
    writes_per_s: int = 50
    shows_pods: bool = False
    evicts: bool = False
    eviction_deadline_s: float = 900.0
    # Nodes that were found dead are taken for switched off, after such a silence at Kubernetes.
    is_dead_off: bool = False
    silence_before_s: float = 300.0


class KubernetesDriver:
    """Driver of one Kubernetes cluster; what it does beside its calls begins with the first one."""

    def __init__(
        self,
        server: ApiServer,
        nodes: Nodes,
        context: DriverContext,
        marking: Marking,
        policy: Policy,
    ) -> None:
        self._server = server
        self._nodes = nodes
        self._context = context
        self._configured = marking
        self._policy = policy
        self._told: dict[str, Told] = {}  # by uid
        self._dead: dict[str, WantedIsolation] = {}  # by uid
        self._names: dict[str, str] = {}  # Everstep's, by that of Kubernetes
        self._is_allowed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._conditions = ConditionWriter(
            server, nodes, self._condition_of, policy.heartbeat_s, policy.writes_per_s
        )
        self._evictions = Evictions(
            server, self, policy.eviction_deadline_s, self._conditions.look_at
        )

    async def read(self) -> DriverView:
        """See IsolationDriver. Raises DriverError."""
        self._start()
        try:
            async with asyncio.timeout(self._context.call_timeout_s * _SHARE):
                await self._allowed()
                await self._nodes.known()
                if trouble := self._conditions.trouble:
                    raise DriverError(trouble)
                await self._tidy(await self._know_names())
                return await self._view()
        except TimeoutError as error:
            raise DriverError("the nodes have not been read in time") from error

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver. Raises DriverError."""
        self._start()
        await self._allowed()
        now: dict[str, Hold | None] = {}
        failures: dict[str, str] = {}
        unmanaged: set[str] = set()
        left = iter(wanted)

        async def work() -> None:
            for one in left:
                try:
                    now[one.node] = await self._make(one)
                except _NoSuchNodeError:
                    unmanaged.add(one.node)
                except DriverError as error:
                    failures[one.node] = str(error)

        await _together(work, min(_AT_ONCE, len(wanted)), self._context.call_timeout_s * _SHARE)
        for name in {one.node for one in wanted} - now.keys() - failures.keys() - unmanaged:
            failures[name] = "it was not reached in time, and is asked for again"
        return Applied(now, failures, unmanaged)

    async def close(self) -> None:
        """End what it does beside its calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self._server.close()

    # --- beside the calls ------------------------------------------------------------------------

    def _start(self) -> None:
        if self._tasks:
            failed = next((one for one in self._tasks if one.done()), None)
            if failed is not None:
                raise DriverError(f"{failed.get_name()} has ended: {failed.exception()!r}")
            return
        work = {"nodes": self._nodes.run(), "conditions": self._conditions.run()}
        if self._policy.evicts:
            work["evictions"] = self._evictions.run()
        self._tasks = [
            asyncio.create_task(run, name=f"kubernetes {name}") for name, run in work.items()
        ]

    async def _allowed(self) -> None:
        """Ask once whether all that is needed is allowed, so that nothing is done by halves."""
        if self._is_allowed:
            return
        missing = await missing_rights(self._server, self._policy.rights)
        if missing:
            access = self._server.access
            raise DriverError(
                f"{access.credentials} may not {', '.join(missing)}; nothing is "
                f"done before it may do all; what is needed: {access.rbac_command}"
            )
        self._is_allowed = True

    async def _know_names(self) -> list[NodeView]:
        """Find out which nodes of the cluster are Everstep's; return those that have marks."""
        names, marked = dict[str, str](), list[NodeView]()
        async for name in _in_slices(self._context.nodes()):
            view = self._nodes.find(name)
            if view is not None:
                names[view.name] = name
                if view.annotations:
                    marked.append(view)
        self._conditions.look_at(self._names.keys() ^ names.keys())
        self._names = names
        return marked

    async def _tidy(self, marked: list[NodeView]) -> None:
        """Remove annotations that say what somebody has undone; see after nodes that were dead."""
        marking = self._marking()
        uids = {view.uid for view in marked}
        self._told = {uid: told for uid, told in self._told.items() if uid in uids}
        for view in marked:
            if has_stale_marks(view, marking) and view.uid not in self._dead:
                owner = self._owner_on(view, marking)
                await self._see_after(view, Change(owner), frees=not owner)
        for uid, wanted in list(self._dead.items()):
            dead = next((one for one in marked if one.uid == uid), None)
            if dead is None:
                del self._dead[uid]
                continue
            out = await self._is_off(dead, wanted)
            await self._see_after(dead, Change(strongest(wanted.owners), out), frees=False)

    async def _see_after(self, view: NodeView, change: Change, *, frees: bool) -> None:
        """Change the marks of a node; where that fails, the next reading does it."""
        try:
            await self._patch(view, change, frees=frees)
        except DriverError as error:
            logger.warning(
                "kubernetes: marks of %s are not as they should be: %s", view.name, error
            )

    # --- reading ---------------------------------------------------------------------------------

    async def _view(self) -> DriverView:
        holds, nodes, silent = dict[str, Hold](), dict[str, SchedulerNode](), list[NodeView]()
        marking = self._marking()
        # Others than our own may become ours, by their labels.
        async for name, view in _in_slices(self._nodes.views.items()):
            hold = hold_of(view, marking)
            own = self._names.get(name, "")
            if hold is not None and own:
                holds[own] = hold
            if view.is_silent and own:
                silent.append(view)
            said = SchedulerNode(view.state, labels=view.labels)
            nodes.update((known, said) for known in self._nodes.names_of(view))
        down = await self._downs(silent)
        if self._policy.shows_pods:
            await self._add_work(nodes)
        return DriverView(holds, {own: said for own, said in down.items() if said}, nodes)

    async def _downs(self, silent: list[NodeView]) -> dict[str, str]:
        """Return the nodes that Kubernetes has lost sight of, with for how long each was silent."""
        found: dict[str, str] = {}
        asked, left = silent[:_ASKED_MAX], silent[_ASKED_MAX:]
        views = iter(asked)

        async def ask() -> None:
            for view in views:
                found[self._names[view.name]] = _down(view, await self._silence_s(view))

        await _together(ask, min(_AT_ONCE, len(asked)), self._context.call_timeout_s * _SHARE)
        for view in left:
            found[self._names[view.name]] = _down(view, self._unheard_s(view))
        return {own: said for own, said in found.items() if said}

    def _unheard_s(self, view: NodeView) -> float | None:
        """Return for how long nothing was heard of a node, by its condition."""
        now_s, ready = self._server.now_s(), view.ready
        last_s = seconds(ready.last_heartbeat_time) if ready is not None else None
        return None if now_s is None or last_s is None else max(0.0, now_s - last_s)

    async def _silence_s(self, view: NodeView) -> float | None:
        """Return for how long nothing was heard of a node: its lease tells, else its condition."""
        call = Call("get", "leases", f"{_LEASES}/{view.name}")
        told_s = None
        try:
            lease = decoded(await self._server.send(call), Lease, "a lease")
            told_s = seconds(lease.spec.renew_time)
        except UnusableError as error:
            raise ApiError(f"{call}: {error}") from error
        except ApiError as error:
            if error.code != _GONE:
                raise
        unheard_s, now_s = self._unheard_s(view), self._server.now_s()
        renewed_s = None if told_s is None or now_s is None else max(0.0, now_s - told_s)
        return min((one for one in (unheard_s, renewed_s) if one is not None), default=None)

    async def _add_work(self, nodes: dict[str, SchedulerNode]) -> None:
        """Add what still runs on nodes that we withhold."""
        for view in self.isolated()[:_ASKED_MAX]:
            own = self._names[view.name]
            pods = sorted(map(name_of, await pods_on(self._server, view.name)))
            nodes[own] = replace(nodes[own], work=tuple(pods[:_WORK_MAX]))

    # --- applying --------------------------------------------------------------------------------

    async def _make(self, wanted: WantedIsolation) -> Hold | None:
        """Make one node so; return the hold on it. Raises DriverError."""
        known = self._nodes.find(wanted.node)
        # What is not followed is not changed either, and a name that no node can have is of none.
        if known is None and (self._nodes.selector or not _NAME.match(wanted.node)):
            raise _NoSuchNodeError(wanted.node)
        name = known.name if known is not None else wanted.node
        node = await self._node(name)
        view = self._kept(node)
        self._names[name] = wanted.node
        told = told_of(wanted) if wanted.withheld else None
        owner = strongest(wanted.owners) if wanted.withheld else ""
        self._remember(view, wanted, told)
        out = await self._is_off(view, wanted)
        cordon = self._configured.cordon if wanted.cordon is None else wanted.cordon
        change = Change(owner, out, cordon)
        view = await self._patch(view, change, frees=not owner, read=node)
        await self._conditions.settle(name)
        view, marking = self._nodes.views.get(name, view), self._marking()
        wanted_condition = self._condition_of(view)
        if (
            wanted_condition is not None
            and is_ours(view, marking) == wanted.withheld
            and self._conditions.is_due(view, wanted_condition)
        ):
            await write_condition(self._server, self._nodes, view, wanted_condition)
        return hold_of(self._nodes.views.get(name, view), marking)

    def _remember(self, view: NodeView, wanted: WantedIsolation, told: Told | None) -> None:
        if told is None:
            self._told.pop(view.uid, None)
        else:
            self._told[view.uid] = told
        if wanted.withheld and wanted.dead and self._policy.is_dead_off:
            self._dead[view.uid] = wanted
        else:
            self._dead.pop(view.uid, None)

    async def _is_off(self, view: NodeView, wanted: WantedIsolation) -> bool:
        """Return whether a node may be taken for switched off: found dead, and silent there."""
        if not (self._policy.is_dead_off and wanted.withheld and wanted.dead and view.is_silent):
            return False
        age_s = await self._silence_s(view)
        return age_s is not None and age_s >= self._policy.silence_before_s

    async def _patch(
        self, view: NodeView, change: Change, *, frees: bool, read: Node | None = None
    ) -> NodeView:
        """Read a node, change its marks and write them, as often as others come between.

        A node that others withhold is left as it is, unless ours is to go. Raises DriverError.
        """
        marking, path = self._marking(), f"{NODES}/{view.name}"
        for _ in range(_TRIES):
            node, read = read or await self._node(view.name), None
            if node.metadata.uid != view.uid:
                raise ApiError("it was made anew meanwhile, and is looked at again")
            now = view_of(node)
            if foreign_hold(now, marking) and not frees and not is_ours(now, marking):
                return self._kept(node)
            patch = patch_of(node, change, marking)
            if patch is None:
                return self._kept(node)
            call = Call(
                "patch", "nodes", path, "PATCH", {"fieldManager": FIELD_MANAGER}, patch, MERGE_PATCH
            )
            try:
                return self._kept(self._decoded(await self._server.send(call), call))
            except ApiError as error:
                if error.code != _CONFLICT:
                    self._is_allowed = self._is_allowed and error.code != _FORBIDDEN
                    raise
                await asyncio.sleep(random.uniform(0.0, 0.1))
        raise ApiError(f"others have changed it {_TRIES} times in between, and it is tried again")

    async def _node(self, name: str) -> Node:
        call = Call("get", "nodes", f"{NODES}/{name}")
        try:
            return self._decoded(await self._server.send(call), call)
        except ApiError as error:
            if error.code == _GONE:
                raise _NoSuchNodeError(name) from error
            raise

    def _decoded(self, body: bytes, call: Call) -> Node:
        try:
            return decoded(body, Node, "the node")
        except UnusableError as error:
            raise ApiError(f"{call}: {error}") from error

    def _kept(self, node: Node) -> NodeView:
        view = view_of(node)
        self._nodes.keep(view)
        return view

    # --- what is known ---------------------------------------------------------------------------

    def _marking(self) -> Marking:
        """Return how nodes are marked; the cluster's id is known once its journal is open."""
        cluster = self._context.cluster_id() or "everstep"
        if self._configured.cluster != cluster:
            self._configured = replace(self._configured, cluster=cluster)
        return self._configured

    def is_isolated(self, view: NodeView) -> bool:
        """Return whether we withhold this very node, as it is known now."""
        now = self._nodes.views.get(view.name)
        return now is not None and now.uid == view.uid and is_ours(now, self._marking())

    def isolated(self) -> list[NodeView]:
        """Return the nodes that we withhold."""
        marking = self._marking()
        return [view for view in self._own() if view.annotations and is_ours(view, marking)]

    def _own(self) -> Iterator[NodeView]:
        """Yield the nodes of the cluster that are Everstep's."""
        views = self._nodes.views
        return (views[name] for name in list(self._names) if name in views)

    def _condition_of(self, view: NodeView) -> WantedCondition | None:
        """Return what a node's condition is to say; None for one that is not Everstep's."""
        marking = self._marking()
        if view.name not in self._names or is_of_another(view, marking):
            return None
        told = told_by(view, marking)
        if not is_ours(view, marking):
            return WantedCondition(isolated=False, told=told)
        told = self._told.get(view.uid, told)
        if left := self._evictions.left.get(view.uid):
            told = Told(told.reason, f"{told.message} ({left})")
        return WantedCondition(isolated=True, told=told)

    @staticmethod
    def _owner_on(view: NodeView, marking: Marking) -> str:
        taints: Mapping[str, str] = {taint.key: taint.value for taint in view.taints}
        return taints[TAINT] if is_ours(view, marking) else ""


async def _in_slices(rows: Iterable[T]) -> AsyncIterator[T]:
    """Yield what is there now, with turns for others: a large fleet takes longer than one may."""
    for count, row in enumerate(list(rows)):
        if count % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        yield row


async def _together(
    work: Callable[[], Coroutine[None, None, None]], count: int, timeout_s: float
) -> None:
    """Do this so many times beside one another, until it is done or the time is over."""
    workers = [asyncio.create_task(work()) for _ in range(count)]
    try:
        if workers:
            await asyncio.wait(workers, timeout=timeout_s)
    finally:
        for worker in workers:
            worker.cancel()
        ended = await asyncio.gather(*workers, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception):
            raise error


def _down(view: NodeView, silent_s: float | None) -> str:
    """Return what is said of a node that Kubernetes does not hear; empty where nobody can say."""
    if silent_s is None or view.ready is None:
        return ""
    words = ": ".join(filter(None, (view.ready.reason, view.ready.message)))
    return f"NotReady, last heard {silent_s:.0f} s ago: {plain(words)}"


class _NoSuchNodeError(DriverError):
    """The cluster does not have this node."""
