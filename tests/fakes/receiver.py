"""A receiver of webhooks: a real HTTP server on loopback that answers as it is told, badly too."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

GOOD = b"HTTP/1.1 204 No Content\r\n\r\n"
_REQUEST_MAX = 1 << 20
_WAIT_S = 30.0


def answer(status: int, words: str = "", **headers: str) -> bytes:
    """Return an answer that is whole."""
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    body = words.encode()
    return f"HTTP/1.1 {status} X\r\n{named}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Request:
    """A request that came, whole."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:  # noqa: ANN401 - JSON
        """Return the event in it."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """Return the event's id."""
        return str(self.event["id"])


# What is done with a connection after its request was read.
Reaction = Callable[[socket.socket, Request], None]


def say(content: bytes) -> Reaction:
    """Return the reaction of a server that says this, and closes."""
    return lambda connection, _: connection.sendall(content)


@dataclass
class Receiver:
    """Server that keeps what it gets; ``react`` may be changed at any time."""

    port: int
    react: Reaction = field(default_factory=lambda: say(GOOD))
    requests: list[Request] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    # Set at the end: a reaction that waits ends by it.
    over: threading.Event = field(default_factory=threading.Event)

    def url(self, scheme: str = "http", path: str = "/hook/secret") -> str:
        """Return its address."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def wait_until(self, holds: "Callable[[Receiver], bool]") -> None:
        """Wait until something is so. Raises AssertionError when it does not come."""
        with self.changed:
            came = self.changed.wait_for(lambda: holds(self), _WAIT_S)
        assert came, [request.event["type"] for request in self.requests]

    @property
    def decisions(self) -> list[Any]:
        """Return the decisions that came, each once."""
        return self.events("decision.taken")

    def events(self, *types: str) -> list[Any]:
        """Return the events of these types that came, each once, in order of their first coming."""
        found = {request.id: request.event for request in self.requests}
        return [one for one in found.values() if one["type"].removeprefix("io.everstep.") in types]


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver on a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Receiver(listening.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(listening, server, tls), name="receiver")
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", server.port), 1).close()
            thread.join()


def _serve(listening: socket.socket, server: Receiver, tls: ssl.SSLContext | None) -> None:
    with suppress(OSError):
        while not server.over.is_set():
            plain, _ = listening.accept()
            with suppress(OSError), plain:
                plain.settimeout(_WAIT_S)
                connection = tls.wrap_socket(plain, server_side=True) if tls else plain
                with connection:
                    _take(connection, server)


def _take(connection: socket.socket, server: Receiver) -> None:
    request = _read(connection)
    if request is None:
        return
    with server.changed:
        server.requests.append(request)
        server.changed.notify_all()
    server.react(connection, request)


def _read(connection: socket.socket) -> Request | None:
    text = b""
    while b"\r\n\r\n" not in text and len(text) < _REQUEST_MAX:
        if not (more := connection.recv(65536)):
            return None
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    while len(body) < int(headers["content-length"]):
        body += connection.recv(65536)
    return Request(first.split(" ")[1], headers, body)
