"""Nodes of a cluster as they are now: one list in pages, then one watch.

A list of 12,500 nodes is 200 MB, so it is asked for at the start and after a watch has lost its
place. What is kept of a node is a view of some hundred bytes.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing

import msgspec

from everstep_controller.drivers.kubernetes.api_server import ApiError, ApiServer, Call
from everstep_controller.drivers.kubernetes.marks import NodeView, view_of
from everstep_controller.drivers.kubernetes.objects import (
    Node,
    Page,
    Status,
    UnusableError,
    WatchEvent,
    decoded,
)

logger = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
_PAGE_NODES = 500
_WATCH_S = 300
# A server that has nothing to tell sends a bookmark about every minute.
_SILENCE_S = 150.0
_GONE = 410
_BACKOFF_S = 1.0
_BACKOFF_MAX_S = 30.0
_HOSTNAME = "kubernetes.io/hostname"
_DELETED_MAX = 256


class Nodes:
    """Nodes of the cluster, followed by a watch; ``run`` is its task."""

    def __init__(self, server: ApiServer, selector: str, randomness: random.Random) -> None:
        self._server = server
        self.selector = selector
        self._random = randomness
        self._views: dict[str, NodeView] = {}
        self._by_hostname: dict[str, str] = {}
        # Those that were deleted last, by uid: an answer from before that brings none of them back.
        self._deleted: deque[str] = deque(maxlen=_DELETED_MAX)
        self._listed = asyncio.Event()
        self._changed = asyncio.Event()
        # Where the next watch goes on; empty where a list is needed before.
        self._version = ""
        self._is_followed = False
        # Names of those that were told of since somebody took them.
        self.touched: set[str] = set()
        # Why they are not known as they are now; empty while they are followed.
        self.failure = ""
        self.lists = self.events = 0

    @property
    def views(self) -> Mapping[str, NodeView]:
        """Return the views of all nodes, by the names that Kubernetes has for them."""
        return self._views

    def find(self, name: str) -> NodeView | None:
        """Return a node by its name, or by the host's name that its kubelet has put on it."""
        view = self._views.get(name)
        return view or self._views.get(self._by_hostname.get(name, ""))

    def names_of(self, view: NodeView) -> set[str]:
        """Return the names by which a node is found."""
        hostname = view.labels.get(_HOSTNAME, "")
        is_by_hostname = hostname and hostname not in self._views
        return {view.name, hostname} if is_by_hostname else {view.name}

    async def known(self) -> None:
        """Wait until they are known, or why not is. Raises ApiError."""
        while not self._listed.is_set() and not self.failure:
            self._changed.clear()
            await self._changed.wait()
        if self.failure:
            raise ApiError(self.failure)

    async def changes(self) -> None:
        """Wait until something of them has changed."""
        self._changed.clear()
        await self._changed.wait()

    def keep(self, view: NodeView) -> None:
        """Take a node as the server has just told, unless a newer word of it is known."""
        known = self._views.get(view.name)
        is_older = known is not None and _is_older(view.version, known.version)
        if view.uid in self._deleted or is_older:
            return
        self._views[view.name] = view
        if hostname := view.labels.get(_HOSTNAME, ""):
            self._by_hostname[hostname] = view.name
        self.touched.add(view.name)
        self._changed.set()

    def drop(self, name: str, uid: str) -> None:
        """Forget a node that was deleted; one of that name that was made since stays."""
        known = self._views.get(name)
        self._deleted.append(uid)
        if known is not None and known.uid == uid:
            del self._views[name]
            self._changed.set()

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        backoff_s = _BACKOFF_S
        while True:
            try:
                if not self._version:
                    await self._list()
                    self._told_well()
                await self._follow()
                backoff_s = _BACKOFF_S
            except ApiError as error:
                if error.code == _GONE:
                    self._version = ""
                elif self._is_followed:
                    self._is_followed = False  # a connection may end; the next one tells why
                    continue
                else:
                    self._told_ill(error)
                wait_s = max(error.retry_after_s, backoff_s * self._random.uniform(0.5, 1.0))
                await asyncio.sleep(wait_s)
                backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)

    # ---------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        """Read all nodes, page by page."""
        seen: set[str] = set()
        params = {"limit": str(_PAGE_NODES), **self._selected()}
        self.lists += 1
        while True:
            page = await self._page(params)
            views = await _off_the_loop(page)
            for view in views:
                self.keep(view)
            seen.update(view.name for view in views)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        version = page.metadata.resource_version
        for name in self._views.keys() - seen:
            if _is_older(self._views[name].version, version):
                self.drop(name, self._views[name].uid)
        self._version = version
        self._listed.set()

    async def _page(self, params: Mapping[str, str]) -> Page:
        call = Call("list", "nodes", NODES, params=params)
        body = await self._server.send(call)
        try:
            return await asyncio.to_thread(decoded, body, Page, "a page of nodes")
        except UnusableError as error:
            raise ApiError(f"{call}: {error}") from error

    async def _follow(self) -> None:
        """Take what changes until the server ends the watch."""
        params = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(_WATCH_S * self._random.uniform(0.8, 1.2))),
            **self._selected(),
        }
        call = Call("watch", "nodes", NODES, params=params)
        async with aclosing(self._server.follow(call, _SILENCE_S)) as lines:
            async for line in lines:
                self._is_followed = True
                if line.strip():
                    self._take(line, call)
                if self.failure:
                    self._told_well()

    def _take(self, line: bytes, call: Call) -> None:
        """Take one event. Raises ApiError, with 410 where the place in the watch is lost."""
        try:
            event = decoded(line, WatchEvent, "an event")
            if event.type == "ERROR":
                status = decoded(event.object, Status, "an error")
                raise ApiError(f"{call}: {status.message or status.reason}", status.code)
            node = decoded(event.object, Node, "a node")
            if event.type != "BOOKMARK":
                self.events += 1
                self._take_node(event.type, node)
        except UnusableError as error:
            raise ApiError(f"{call}: {error}", _GONE) from error
        self._version = node.metadata.resource_version or self._version

    def _take_node(self, kind: str, node: Node) -> None:
        if kind == "DELETED":
            self.drop(node.metadata.name, node.metadata.uid)
        else:
            self.keep(view_of(node))

    def _selected(self) -> dict[str, str]:
        return {"labelSelector": self.selector} if self.selector else {}

    def _told_well(self) -> None:
        if self.failure:
            logger.info("kubernetes: the nodes are followed again")
        self.failure = ""
        self._changed.set()

    def _told_ill(self, error: ApiError) -> None:
        if str(error) != self.failure:
            logger.warning(
                "kubernetes: the nodes are not followed, and this is tried again: %s", error
            )
        self.failure = str(error)
        self._changed.set()


async def _off_the_loop(page: Page) -> list[NodeView]:
    """Return the views of a page's nodes, decoded one by one beside the event loop."""
    return await asyncio.to_thread(_views, page.items or [])


def _views(items: list[msgspec.Raw]) -> list[NodeView]:
    try:
        return [view_of(decoded(item, Node, "a node")) for item in items]
    except UnusableError as error:
        raise ApiError(f"list nodes: {error}") from error


def _is_older(one: str, other: str) -> bool:
    """Return whether a version is before another; versions that are no numbers are never."""
    return one.isdigit() and other.isdigit() and int(one) < int(other)
