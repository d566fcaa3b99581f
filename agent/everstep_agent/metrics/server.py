"""Metrics server: a small HTTP server on the event loop that serves /metrics and nothing else."""

import asyncio
import logging
import ssl
from collections.abc import Callable

logger = logging.getLogger(__name__)

# Prometheus sends a few hundred bytes; whoever sends more, or slowly, is not Prometheus.
_REQUEST_BYTES_MAX = 16 << 10
_REQUEST_TIMEOUT_S = 5.0
_CONNECTIONS_MAX = 16
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Answers GET /metrics with what ``render`` returns, one request for each connection."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._open = 0
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port. Raises OSError."""
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=_REQUEST_BYTES_MAX, ssl=tls
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
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
        return _response("200 OK", self._render(), head=method == b"HEAD")


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
