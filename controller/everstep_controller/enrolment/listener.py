"""Enrolment listener: a small HTTPS server for nodes without a certificate, apart from the agents'.

It asks nobody for a certificate, and hears each connection for a few seconds and one request.
Whoever is refused too often is not heard for a while (attempt_limit.py), before any handshake.
"""

import asyncio
import contextlib
import json
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from everstep_common.addresses import split_address
from everstep_common.codec import CodecError, from_json, json_text
from everstep_controller.enrolment.attempt_limit import AttemptLimit
from everstep_controller.enrolment.service import EnrolmentService, RefusedError
from everstep_proto.enrolment.messages import (
    AUTHORITY_PATH,
    BYTES_MAX,
    ENROL_PATH,
    POD_PATH,
    RENEW_PATH,
    EnrolRequest,
    PodEnrolRequest,
    Refusal,
    RenewRequest,
)
from everstep_proto.tls import RefreshedContext, TlsSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
# A node has its request ready; one that is slow comes again.
_HANDSHAKE_S, _REQUEST_S, _ANSWER_S = 5.0, 5.0, 45.0
# Connections at once: 64 handshakes take a fifteenth of a second of the event loop.
_CONNECTIONS_MAX = 64
_BACKLOG = 1024
_REST_S = 0.2
_DUE_S = 5.0
_BAD, _FORBIDDEN, _NONE = "400 Bad Request", "403 Forbidden", "404 Not Found"


class EnrolmentListener:
    """Listens until it is closed; what a request means is in EnrolmentService."""

    def __init__(
        self, tls: TlsSettings, service: EnrolmentService, knows: Callable[[str], bool]
    ) -> None:
        """``knows`` says whether an address is that of a node. Raises OSError."""
        self._context = RefreshedContext(tls, _context(tls))
        self._service, self._knows = service, knows
        self.limit = AttemptLimit()
        self._places = asyncio.Semaphore(_CONNECTIONS_MAX)
        self._listener: socket.socket | None = None

    def open(self, address: str) -> int:
        """Listen; return the port. Raises OSError."""
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server(
            (host.strip("[]"), int(port)), family=family, backlog=_BACKLOG
        )
        self._listener.setblocking(False)
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.close()

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = self._listener
        if listener is None:
            raise RuntimeError("the enrolment port is not open")
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_refusals(), name="enrolment refusals")
            while True:
                await self._places.acquire()
                try:
                    accepted, peer = await loop.sock_accept(listener)
                except OSError as error:  # out of descriptors: the backlog waits
                    self._places.release()
                    logger.warning("enrolment: %s", error)
                    await asyncio.sleep(_REST_S)
                    continue
                address = str(peer[0]).removeprefix("::ffff:")
                if self.limit.hears(address, loop.time(), known=self._knows(address)):
                    group.create_task(self._serve(accepted, address), name="enrolment request")
                else:
                    accepted.close()
                    self._places.release()
                    # Whoever is not heard gets no more of the loop than this.
                    await asyncio.sleep(0)

    async def _tell_refusals(self) -> None:
        while True:
            await asyncio.sleep(_DUE_S)
            self._service.tell_due_refusals()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        try:
            good = await self._answer(accepted, address)
        finally:
            self._places.release()
        if not good:
            now_s = asyncio.get_running_loop().time()
            self.limit.note_refused(address, now_s, known=self._knows(address))

    async def _answer(self, accepted: socket.socket, address: str) -> bool:
        """Answer one request; return whether it was a good one."""
        reader = asyncio.StreamReader(BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context.refresh(),
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=1.0,
            )
        except OSError:
            accepted.close()
            return False
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            async with asyncio.timeout(_REQUEST_S):
                line, body = await _request(reader)
            async with asyncio.timeout(_ANSWER_S):
                status, answer = await self._respond(line, body, address)
                writer.write(_response(status, answer))
                await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return status == "200 OK"

    async def _respond(self, line: str, body: bytes, address: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0]
        try:
            if (method, path) == ("GET", AUTHORITY_PATH):
                return "200 OK", json_text(self._service.authority())
            if (method, path) == ("POST", ENROL_PATH):
                return await self._of(EnrolRequest, body, self._service.enrol, address)
            if (method, path) == ("POST", POD_PATH):
                return await self._of(PodEnrolRequest, body, self._service.enrol_pod, address)
            if (method, path) == ("POST", RENEW_PATH):
                return await self._of(RenewRequest, body, self._service.renew, address)
        except RefusedError as error:
            return _FORBIDDEN, json_text(Refusal(problem=str(error)))
        except (CodecError, ValueError) as error:
            problem = f"the request cannot be read: {str(error)[:200]}"
            return _BAD, json_text(Refusal(problem=problem))
        return _NONE, json_text(Refusal(problem="this is the port at which nodes enrol"))

    async def _of(
        self, kind: type[T], body: bytes, ask: Callable[[T, str], Awaitable[object]], address: str
    ) -> tuple[str, str]:
        return "200 OK", json_text(await ask(from_json(kind, json.loads(body)), address))


def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.load_cert_chain(str(tls.certificate), tls.key)
    return context


async def _request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return the first line of a request, and its body. Raises ValueError, EOFError, OSError."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {key.strip().lower(): value for key, _, value in (one.partition(":") for one in head)}
    length = int(fields.get("content-length", "0"))
    if not 0 <= length <= BYTES_MAX:
        raise ValueError(f"a request of {length} bytes")
    return head[0], await reader.readexactly(length)


def _response(status: str, body: str) -> bytes:
    content = body.encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + content
