"""Serving of the page: where it listens, and the address that lets somebody in once."""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from everstep_cli.client.admin import Admin
from everstep_cli.page.access import Access
from everstep_cli.page.app import PageOptions, application
from everstep_cli.page.source import Source
from everstep_common.addresses import is_loopback, split_address

# By these a browser of this machine asks for it; another name is another site's that leads here.
_UNREAD_MS = 60_000
_NAMES = ("localhost", "127.0.0.1", "::1")


class ServeError(Exception):
    """The page cannot be served there; the sentence says what to do."""


def listen_problem(address: str) -> str:
    """Say why a page may not listen at an address; "" where it may."""
    host, _ = split_address(address)
    if is_loopback(host):
        return ""
    return (
        f"{address} is no address of this machine alone, and the page has no certificates: listen"
        " on 127.0.0.1, and reach it by 'ssh -L 7436:127.0.0.1:7436 HOST'"
    )


def serve(
    admin: Admin,
    address: str,
    now_s: Callable[[], float],
    opened: Callable[[str], None],
    grafana: str = "",
) -> None:
    """Serve until SIGINT or SIGTERM; ``opened`` is told each address that lets somebody in once."""
    if problem := listen_problem(address):
        raise ServeError(problem)
    host, port = split_address(address)
    access, listener = Access(now_s, secrets.token_urlsafe), _listening(host, int(port))

    def invite() -> None:
        shown = f"[{host}]" if ":" in host else host
        opened(f"http://{shown}:{listener.getsockname()[1]}/login?token={access.new_token()}")

    app = application(Source(admin), access, _NAMES, invite, PageOptions(grafana))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        # Streams of events end with it.
        timeout_graceful_shutdown=2,
        limit_concurrency=512,
    )
    with listener:
        invite()
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Raises ServeError."""
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        told = f"{host}:{port} cannot be listened on: {error.strerror}"
        raise ServeError(f"{told}; 'ss -ltnp' shows who does, port 0 picks a free one") from error
    # Connections have it from here: one whose other end takes nothing more is closed.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    return listener


def keep_in_file(path: Path) -> Callable[[str], None]:
    """Return what writes the newest address into a file that only its owner reads."""

    def write(address: str) -> None:
        made = path.with_name(f".{path.name}.new")
        made.unlink(missing_ok=True)
        made.touch(mode=0o600)
        made.write_text(f"{address}\n", encoding="ascii")
        made.replace(path)

    return write
