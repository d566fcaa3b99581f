"""Connections of the page: who is at the other end, and for how long one may hold its place."""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from everstep_cli.page.doors import NOBODY, Doors, Peer

# Of a TLS handshake as of a request: all of it has come by then.
_REQUEST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """For how long a connection may wait, and how many there may be."""

    # A request is a few hundred bytes.
    request_s: float = _REQUEST_S
    # A page is some hundred kilobytes, and a browser that reads at all has them by then.
    unread_s: float = 60.0
    look_s: float = 2.0
    # Of those who have shown no session and no certificate, all together.
    strangers_max: int = 256
    # Of one person: a browser has six, and somebody has two of them.
    per_person_max: int = 16
    # Of a proxy, which is many people.
    of_proxy_max: int = 512
    connections_max: int = 1024


_STRANGERS = ""
_PROXY = "proxy"
# struct ucred: process, user and group, unix(7).
_UCRED = struct.Struct("3i")
# In a request's ASGI scope: the connection that it came by.
SCOPE_KEY = "everstep.connection"


class Crowd:
    """Connections by whose they are; the oldest of a crowd that is full ends for a newer one."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._of: dict[str, dict[PageConnection, None]] = {}
        self._key: dict[PageConnection, str] = {}

    def add(self, connection: "PageConnection", key: str) -> None:
        """Count a connection among those of ``key``; the oldest of these ends where it is full."""
        if self._key.get(connection) == key:
            return
        self.discard(connection)
        if len(self._of.get(key, ())) >= self._most(key):
            self._end_oldest(key)
        elif len(self._key) >= self.limits.connections_max:
            # Who has shown nothing goes first, and then whoever has the most.
            fullest = max(self._of, key=lambda one: len(self._of[one]))
            self._end_oldest(_STRANGERS if _STRANGERS in self._of else fullest)
        self._of.setdefault(key, {})[connection] = None
        self._key[connection] = key

    def _end_oldest(self, key: str) -> None:
        oldest = next(iter(self._of[key]))
        self.discard(oldest)
        oldest.transport.abort()

    def discard(self, connection: "PageConnection") -> None:
        """Forget a connection that is over."""
        key = self._key.pop(connection, None)
        if key is not None:
            self._of[key].pop(connection, None)
            if not self._of[key]:
                del self._of[key]

    def _most(self, key: str) -> int:
        if key == _STRANGERS:
            return self.limits.strangers_max
        return self.limits.of_proxy_max if key == _PROXY else self.limits.per_person_max


class PageConnection(H11Protocol):
    """Connection with deadlines: uvicorn has none for a request, nor for what nobody reads."""

    def __init__(
        self,
        doors: Doors,
        crowd: Crowd,
        proxy_uid: int | None,
        *,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._doors, self._crowd, self._limits = doors, crowd, crowd.limits
        self._proxy_uid = proxy_uid
        self.peer: Peer = NOBODY
        # Whether who has asked may still be answered; a stream lasts for hours.
        self._still: Callable[[], bool] = _always
        self._seen_cycle: object = None
        self._waits_since_s: float | None = None
        self._unread_since_s: float | None = None
        inner = self.app

        async def with_connection(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            scope[SCOPE_KEY] = self
            await inner(scope, receive, send)

        self.app = with_connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Look who it is, and begin to count its time."""
        super().connection_made(transport)
        self._waits_since_s = self.loop.time()
        if self._doors.socket and not self._is_of_proxy_user():
            transport.abort()
            return
        if self._doors.socket:
            self.peer = Peer(is_proxy=True)
        elif (tls := transport.get_extra_info("ssl_object")) is not None:
            self.peer = self._doors.peer_by_certificate(tls.getpeercert())
        self.count_for(_STRANGERS)
        self.loop.call_later(self._limits.look_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its place away."""
        self._crowd.discard(self)
        super().connection_lost(exc)

    def count_for(self, key: str) -> None:
        """Count it for a person from now on: those of strangers go first."""
        self._crowd.add(self, _PROXY if self.peer.is_proxy else key)

    def end_unless(self, still: Callable[[], bool]) -> None:
        """End it, in the middle of an answer too, once who has asked may see it no more."""
        self._still = still

    def _look(self) -> None:
        """End it where it has waited too long; look again otherwise."""
        if self not in self.connections:
            return
        now_s = self.loop.time()
        waits = self._is_without_request() and self.cycle is self._seen_cycle
        self._seen_cycle = self.cycle
        self._waits_since_s = _since(self._waits_since_s, waits, now_s)
        unread = self.transport.get_write_buffer_size() > 0
        self._unread_since_s = _since(self._unread_since_s, unread, now_s)
        if (
            now_s - (self._waits_since_s or now_s) > self._limits.request_s
            or now_s - (self._unread_since_s or now_s) > self._limits.unread_s
            or not self._still()
        ):
            self.transport.abort()
            return
        self.loop.call_later(self._limits.look_s, self._look)

    def _is_without_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _is_of_proxy_user(self) -> bool:
        raw: socket.socket = self.transport.get_extra_info("socket")
        shown = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return bool(_UCRED.unpack(shown)[1] == self._proxy_uid)


def _always() -> bool:
    return True


def _since(before_s: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if before_s is None else before_s


class PromptLoop(asyncio.SelectorEventLoop):
    """Event loop whose servers give a TLS handshake as long as a request, not a minute."""

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """See asyncio."""
        if kwargs.get("ssl") is not None:
            kwargs["ssl_handshake_timeout"] = _REQUEST_S
        return await super().create_server(*args, **kwargs)
