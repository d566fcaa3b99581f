"""A page that is served for a test: the real server on a thread, and what is answered behind it."""

import asyncio
import http.client
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from everstep_cli.client.admin import Admin
from everstep_cli.page.access import Access
from everstep_cli.page.app import application
from everstep_cli.page.connection import Limits, PromptLoop
from everstep_cli.page.doors import Doors
from everstep_cli.page.serving import listening, page_server
from everstep_cli.page.source import Source
from fakes.waits import wait_until


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page answered."""

    code: int
    headers: Mapping[str, str]
    text: str


def ask(
    connection: http.client.HTTPConnection,
    path: str = "/session",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Ask for a page and end the connection."""
    try:
        connection.request("GET", path, headers={"Host": "localhost", **(headers or {})})
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read().decode())
    finally:
        connection.close()


class UnixConnection(http.client.HTTPConnection):
    """Connection to a page, or to what stands before it, at a Unix socket."""

    def __init__(self, path: Path, tls: ssl.SSLContext | None = None) -> None:
        super().__init__("localhost", timeout=10)
        self._path, self._tls = str(path), tls

    def connect(self) -> None:
        """See HTTPConnection."""
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        plain.settimeout(10)
        plain.connect(self._path)
        self.sock = plain if self._tls is None else self._tls.wrap_socket(plain)


@dataclass(frozen=True, slots=True)
class ServedPage:
    """Where it listens, and what lets in."""

    port: int
    access: Access
    server: uvicorn.Server


@contextmanager
def served_page(doors: Doors, admin: Admin, limits: Limits | None = None) -> Iterator[ServedPage]:
    """Serve a page on a thread of this process."""
    listener = listening(doors)
    access = Access(time.monotonic, secrets.token_urlsafe)
    server = page_server(doors, application(Source(admin), access, doors), limits)

    def run() -> None:
        with asyncio.Runner(loop_factory=PromptLoop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = 0 if doors.socket else listener.getsockname()[1]
        yield ServedPage(port, access, server)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()
