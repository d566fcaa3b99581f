"""Nodes of a cluster as they are now: one list in pages, then one watch.

A list of 12,500 nodes is 200 MB, so it is asked for at the start and after a watch has lost its
place. What is kept of a node is a view of some hundred bytes.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from contextlib import aclosing

import msgspec

from everstep_controller.drivers.kubernetes.api_server import (
    ApiError,
    ApiServer,
    Call,
    SilentError,
    refusal,
)
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
# A watch that ends sooner has followed nothing: the next one waits, as after a failure.
_SHORT_S = 1.0
# So many of them in a row are told to people.
_CUTS_MAX = 3
_DELETED_MAX = 256


class Nodes:
    """Nodes of the cluster, followed by a watch; ``run`` is its task."""

    def __init__(self, server: ApiServer, selector: str, randomness: random.Random) -> None:
        self._server = server
        self.selector = selector
        self._random = randomness
        self._views: dict[str, NodeView] = {}
        # Names of the nodes with a host's name; two nodes may claim the same.
        self._by_hostname: dict[str, set[str]] = {}
        # Those that went last, by uid, and when by the server's versions: an answer from before
        # that brings none of them back. One that left the selection may come again.
        self._gone: dict[str, str] = {}
        self._listed = asyncio.Event()
        self._changed = asyncio.Event()
        # Where the next watch goes on; empty where a list is needed before.
        self._version = ""
        self._is_followed = self._was_cut = False
        self._failures = self._cuts = 0
        # The newest version that the server has told: a list is at least as new.
        self._newest = ""
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
        view, named = self._views.get(name), self._by_hostname.get(name, ())
        return view or (self._views.get(next(iter(named))) if len(named) == 1 else None)

    def names_of(self, view: NodeView) -> set[str]:
        """Return the names by which a node is found."""
        hostname = view.hostname
        return {view.name, hostname} if hostname and self.find(hostname) is view else {view.name}

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
        known, gone = self._views.get(view.name), self._gone.get(view.uid)
        if known is not None and _is_older(view.version, known.version):
            return
        if gone is not None and not _is_older(gone, view.version):
            return
        self._views[view.name] = view
        self._note_newest(view.version)
        if known is None or known.hostname != view.hostname:
            self._unname(known)
            if view.hostname not in ("", view.name):
                self._by_hostname.setdefault(view.hostname, set()).add(view.name)
        self.touched.add(view.name)
        self._changed.set()

    def drop(self, name: str, uid: str, version: str) -> None:
        """Forget a node that has gone by a version; one of that name that was made since stays."""
        known = self._views.get(name)
        self._gone.pop(uid, None)
        self._gone[uid] = version
        if len(self._gone) > _DELETED_MAX:
            del self._gone[next(iter(self._gone))]
        if known is not None and known.uid == uid:
            del self._views[name]
            self._unname(known)
            self._changed.set()

    def _unname(self, view: NodeView | None) -> None:
        if view is not None and view.hostname in self._by_hostname:
            self._by_hostname[view.hostname].discard(view.name)

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        while True:
            wait_s = await self._turn()
            await asyncio.sleep(wait_s)

    # ---------------------------------------------------------------------------------------------

    async def _turn(self) -> float:
        """List where that is needed, and follow; return how long to wait then, in seconds."""
        loop, error = asyncio.get_running_loop(), None
        self._is_followed, began_s = False, loop.time()
        try:
            if self._version and self._was_cut:
                await self._check_place()
            if not self._version:
                await self._list()
                self._told_well()
                began_s = loop.time()
            await self._follow()
        except ApiError as one:
            error = one
        self._was_cut = error is not None
        has_followed = self._is_followed and loop.time() - began_s >= _SHORT_S
        self._failures = 0 if has_followed else self._failures + 1
        self._cuts = self._cuts + 1 if self._is_followed and not has_followed else 0
        if error is not None and (error.code == _GONE or isinstance(error, SilentError)):
            self._version = ""
        elif has_followed:
            return 0.0  # a watch ends after a while, and a connection may; the next one tells why
        elif not self._is_followed or self._cuts >= _CUTS_MAX:
            self._told_ill(error or ApiError("watch nodes: the API server ends it at once"))
        backoff_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2.0 ** min(max(self._failures - 1, 0), 8))
        asked_s = error.retry_after_s if error is not None else 0.0
        return max(asked_s, backoff_s * self._random.uniform(0.5, 1.0))

    async def _list(self) -> None:
        """Read all nodes, page by page."""
        seen: set[str] = set()
        anew: list[NodeView] = []
        params = {"limit": str(_PAGE_NODES), **self._selected()}
        self.lists += 1
        newest = self._newest
        while True:
            page = await self._page(params)
            version = page.metadata.resource_version
            views = await _off_the_loop(page)
            seen.update(view.name for view in views)
            if _is_older(version, newest):
                anew += views
            else:
                for view in views:
                    self.keep(view)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        if _is_older(version, newest):
            self._begin_anew(version, anew)
        for name in self._views.keys() - seen:
            if _is_older(self._views[name].version, version):
                self.drop(name, self._views[name].uid, version)
        self._version = version
        self._note_newest(version)
        self._listed.set()

    async def _check_place(self) -> None:
        """See whether the server that is back has all that was told before: a list of one node."""
        page = await self._page({"limit": "1"})
        if _is_older(page.metadata.resource_version, self._newest):
            self._version = ""

    def _begin_anew(self, version: str, views: Iterable[NodeView]) -> None:
        """Take a list of all nodes for what is there: the store was restored from a backup."""
        logger.warning(
            "kubernetes: the API server is back at version %s after %s: its store was restored "
            "from a backup, and all nodes are read anew",
            version,
            self._newest,
        )
        self._views.clear()
        self._by_hostname.clear()
        self._gone.clear()
        self._newest = version
        for view in views:  # in one turn: a reading in between would find no holds
            self.keep(view)

    def _note_newest(self, version: str) -> None:
        if not self._newest or _is_older(self._newest, version):
            self._newest = version

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
                has_news = bool(line.strip())
                if has_news:
                    self._take(line, call)
                if self.failure and (has_news or self._cuts < _CUTS_MAX):
                    self._told_well()

    def _take(self, line: bytes, call: Call) -> None:
        """Take one event. Raises ApiError, with 410 where the place in the watch is lost."""
        try:
            event = decoded(line, WatchEvent, "an event")
            if event.type == "ERROR":
                status = decoded(event.object, Status, "an error")
                raise refusal(call, status)
            node = decoded(event.object, Node, "a node")
            if event.type != "BOOKMARK":
                self.events += 1
                self._take_node(event.type, node)
            elif _is_older(node.metadata.resource_version, self._version):
                raise ApiError(f"{call}: the API server is back at an older version", _GONE)
        except UnusableError as error:
            raise ApiError(f"{call}: {error}", _GONE) from error
        self._version = node.metadata.resource_version or self._version

    def _take_node(self, kind: str, node: Node) -> None:
        if kind == "DELETED":
            self.drop(node.metadata.name, node.metadata.uid, node.metadata.resource_version)
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
