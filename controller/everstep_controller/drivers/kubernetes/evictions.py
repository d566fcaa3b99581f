"""Pods on isolated nodes: which of them run there still, and the eviction of those that should not.

Off by default. A pod leaves by the API of evictions alone, so that its disruption budget has the
last word; what that forbids for too long is left to people.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from everstep_controller.drivers.kubernetes.api_server import ApiError, ApiServer, Call
from everstep_controller.drivers.kubernetes.marks import JOB_LABEL, TAINT, NodeView
from everstep_controller.drivers.kubernetes.objects import Page, Pod, UnusableError, decoded

logger = logging.getLogger(__name__)

PODS = "/api/v1/pods"
_LOOK_S = 5.0
_PAGE_PODS = 500
_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")
_TOO_MANY, _NO_SUCH, _GONE = 429, 400, 404


def name_of(pod: Pod) -> str:
    """Return a pod's name, with its namespace."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def has_ended(pod: Pod) -> bool:
    """Return whether nothing of a pod runs any more."""
    return pod.status.phase in _ENDED


def stays(pod: Pod) -> str:
    """Return why a pod is not evicted; empty for one that is."""
    metadata = pod.metadata
    if JOB_LABEL in (metadata.labels or {}):
        return "it is of an Everstep job, which leaves by a drain"
    if metadata.deletion_timestamp is not None:
        return "it ends already"
    if _MIRROR in (metadata.annotations or {}):
        return "the kubelet's own files make it"
    if any(one.controller and one.kind == "DaemonSet" for one in metadata.owner_references or ()):
        return "a DaemonSet would make it again"
    if any(one.key in ("", TAINT) for one in pod.spec.tolerations or ()):
        return "it tolerates the taint"
    return ""


async def pods_on(server: ApiServer, node: str) -> list[Pod]:
    """Return the pods on a node that have not ended. Raises ApiError."""
    found: list[Pod] = []
    params = {"fieldSelector": f"spec.nodeName={node}", "limit": str(_PAGE_PODS)}
    call = Call("list", "pods", PODS, params=params)
    while True:
        try:
            page = decoded(await server.send(call), Page, "a page of pods")
            found += (decoded(item, Pod, "a pod") for item in page.items or ())
        except UnusableError as error:
            raise ApiError(f"{call}: {error}") from error
        if not page.metadata.continue_:
            break
        params["continue"] = page.metadata.continue_
    return [pod for pod in found if pod.spec.node_name == node and not has_ended(pod)]


def eviction_call(pod: Pod) -> Call:
    """Return the request that evicts this very pod, and not one of its name that came after it."""
    metadata = pod.metadata
    return Call(
        verb="create",
        resource="pods/eviction",
        method="POST",
        path=f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction",
        body={
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        },
    )


@dataclass(slots=True)
class _Emptying:
    """Emptying of one isolated node."""

    began_s: float
    not_before_s: float = 0.0
    refused: Mapping[str, str] | None = None
    is_left: bool = False


class Isolated(Protocol):
    """Nodes that we withhold now."""

    def isolated(self) -> list[NodeView]:
        """Return them."""
        ...

    def is_isolated(self, view: NodeView) -> bool:
        """Return whether this very node is one."""
        ...


class Evictions:
    """Evicts pods from nodes that are isolated; ``run`` is its task."""

    def __init__(
        self,
        server: ApiServer,
        held: Isolated,
        deadline_s: float,
        tell: Callable[[Iterable[str]], None],
    ) -> None:
        self._server = server
        self._held = held
        self._tell = tell
        self._deadline_s = deadline_s
        self._emptying: dict[str, _Emptying] = {}
        # Pods that people are to look after, by the uid of their node, as a sentence.
        self.left: dict[str, str] = {}

    async def run(self) -> None:
        """Evict until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Evict what may be evicted now from each node that is isolated."""
        views = {view.uid: view for view in self._held.isolated()}
        for uid in self._emptying.keys() - views.keys():
            del self._emptying[uid]
            self.left.pop(uid, None)
        for uid, view in views.items():
            now = asyncio.get_running_loop().time()
            one = self._emptying.setdefault(uid, _Emptying(began_s=now))
            if now >= one.not_before_s:
                await self._empty(view, one)

    async def _empty(self, view: NodeView, one: _Emptying) -> None:
        try:
            pods = [pod for pod in await pods_on(self._server, view.name) if not stays(pod)]
            refused = {}
            for pod in pods:
                if not self._held.is_isolated(view):
                    return  # it was freed meanwhile: what is still there may stay
                if words := await self._evict(pod, one):
                    refused[name_of(pod)] = words
        except ApiError as error:
            logger.warning("kubernetes: pods of %s are not evicted: %s", view.name, error)
            refused = dict(one.refused or {})
        self._settle(view, one, refused)

    async def _evict(self, pod: Pod, one: _Emptying) -> str:
        """Evict a pod; return why not, where its budget forbids that for now. Raises ApiError."""
        try:
            await self._server.send(eviction_call(pod))
        except ApiError as error:
            if error.code == _GONE:
                return ""
            if error.code == _TOO_MANY:
                now = asyncio.get_running_loop().time()
                one.not_before_s = max(one.not_before_s, now + error.retry_after_s)
            return str(error)
        logger.info("kubernetes: %s was evicted from an isolated node", name_of(pod))
        return ""

    def _settle(self, view: NodeView, one: _Emptying, refused: Mapping[str, str]) -> None:
        """Remember what is refused, and tell people once when that has lasted too long."""
        one.refused = refused
        late = asyncio.get_running_loop().time() - one.began_s >= self._deadline_s
        had = self.left.pop(view.uid, "")
        if refused and late:
            self.left[view.uid] = f"not evicted: {', '.join(sorted(refused))}"
        if self.left.get(view.uid, "") != had:
            self._tell([view.name])
        if not refused or not late:
            one.is_left = False
            return
        if not one.is_left:
            one.is_left = True
            pod, words = next(iter(sorted(refused.items())))
            logger.warning(
                "kubernetes: %d pods were not evicted from %s within %g s, and people should look "
                "after them: %s: %s",
                len(refused),
                view.name,
                self._deadline_s,
                pod,
                words,
            )
