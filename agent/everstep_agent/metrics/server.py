"""Metrics server: a small HTTP server on the event loop that serves /metrics and nothing else."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping

from everstep_agent.ipc.accept_load_limit import AcceptLoadLimit
from everstep_agent.ipc.listeners import listen_tcp
from everstep_proto.tls import RefreshedContext

logger = logging.getLogger(__name__)

# Prometheus sends a few hundred bytes; whoever sends more, or slowly, is not Prometheus.
_REQUEST_BYTES_MAX = 16 << 10
_REQUEST_TIMEOUT_S = 5.0
_CONNECTIONS_MAX = 16
# Rendering takes milliseconds of the event loop, which any process on the node could ask for.
_FRESH_S = 0.5
# What a request takes of it besides. How long nobody is let in who finds no descriptor left.
_ANSWER_S = 0.0005
_REST_S = 0.2
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Answers GET /metrics with what ``render`` returns, one request for each connection."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._open = 0
        self._text = b""
        self._rendered_s = float("-inf")
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._revoked: Callable[[Mapping[str, object]], str] = lambda _: ""

    async def open(
        self,
        host: str,
        port: int,
        tls: RefreshedContext | None = None,
        revoked: Callable[[Mapping[str, object]], str] = lambda _: "",
    ) -> int:
        """Listen; return the port. ``revoked``: why a client's certificate counts no more.

        Raises OSError.
        """
        self._revoked = revoked
        self._listener = listen_tcp(host, port, "metrics_address")
        self._accepting = asyncio.create_task(self._accept(self._listener, tls), name="metrics")
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._accepting is not None:
            self._accepting.cancel()
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket, tls: RefreshedContext | None) -> None:
        loop, load_limit = asyncio.get_running_loop(), AcceptLoadLimit()
        async with asyncio.TaskGroup() as group:
            while True:
                await load_limit.rest_if_due()
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:  # out of descriptors: the backlog waits
                    logger.warning("metrics: %s", error)
                    await asyncio.sleep(_REST_S)
                    continue
                load_limit.count_work(_ANSWER_S)
                group.create_task(self._connect(accepted, tls), name="metrics connection")

    async def _connect(self, accepted: socket.socket, tls: RefreshedContext | None) -> None:
        reader = asyncio.StreamReader(_REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        with contextlib.suppress(OSError):  # it has left, or speaks another TLS
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=tls.refresh() if tls else None,
                ssl_handshake_timeout=_REQUEST_TIMEOUT_S if tls else None,
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                if why := self._revoked(writer.get_extra_info("peercert") or {}):
                    raise OSError(why)
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(request))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("metrics: %s", error)
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if self._open > _CONNECTIONS_MAX:
            return _response("503 Service Unavailable", b"too many connections\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"only /metrics is here\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        return _response("200 OK", self._page(), head=method == b"HEAD")

    def _page(self) -> bytes:
        """Return what was rendered a moment ago, or anew."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._rendered_s >= _FRESH_S:
            self._text, self._rendered_s = self._render(), now_s
        return self._text


def _response(status: str, body: bytes, *, head: bool = False) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {_CONTENT_TYPE}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + (b"" if head else body)
