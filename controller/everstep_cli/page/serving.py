"""Serving of the page: where it listens, and the addresses that let somebody in once."""

import functools
import os
import pwd
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import uvicorn

from everstep_cli.client.admin import Admin
from everstep_cli.page.access import Access
from everstep_cli.page.app import PageOptions, application
from everstep_cli.page.connection import Crowd, Limits, PageConnection
from everstep_cli.page.doors import Doors, shown_host
from everstep_cli.page.source import Source
from everstep_common.addresses import split_address
from everstep_proto.tls import Role

# What the kernel keeps of answers that a browser does not read, of each of a thousand connections.
# It doubles the number, and by itself would take four megabytes (tcp(7)).
_UNREAD_BYTES = 64 * 1024
_LOOP = "everstep_cli.page.connection:PromptLoop"
_UNREAD_MS = 60_000


class ServeError(Exception):
    """The page cannot be served so; the sentence says what to do."""


def serve(
    admin: Admin,
    doors: Doors,
    now_s: Callable[[], float],
    opened: Callable[[Mapping[Role, str]], None],
    grafana: str = "",
) -> None:
    """Serve until SIGINT or SIGTERM; ``opened`` is told the addresses that let somebody in once.

    Raises ServeError.
    """
    if problem := doors.problem():
        raise ServeError(problem)
    access, listener = Access(now_s, secrets.token_urlsafe), listening(doors)
    with listener:
        invitations = _Invitations(doors, access, listener, opened)
        app = application(Source(admin), access, doors, invitations.renew, PageOptions(grafana))
        server = page_server(doors, app)
        invitations.renew()
        try:
            server.run(sockets=[listener])
        finally:
            if doors.socket:
                Path(doors.socket).unlink(missing_ok=True)


class _Invitations:
    """Addresses with tokens, one for each role; none where a proxy says who everybody is."""

    def __init__(
        self,
        doors: Doors,
        access: Access,
        listener: socket.socket,
        opened: Callable[[Mapping[Role, str]], None],
    ) -> None:
        self._doors, self._access, self._listener = doors, access, listener
        self._opened = opened

    def renew(self) -> None:
        """Make new addresses, and tell them."""
        if self._doors.has_proxy:
            return
        scheme = "https" if self._doors.has_tls else "http"
        host = shown_host(self._doors.listen, self._doors.names)
        begin = f"{scheme}://{host}:{self._listener.getsockname()[1]}/login?token="
        self._opened({role: begin + self._access.new_token(role) for role in self._doors.roles})


def page_server(doors: Doors, app: object, limits: Limits | None = None) -> uvicorn.Server:
    """Return what serves an application by these doors. Raises ServeError."""
    crowd = Crowd(limits or Limits())
    connection = functools.partial(PageConnection, doors, crowd, _proxy_uid(doors))
    config = uvicorn.Config(
        cast("Callable[..., object]", app),
        # Of the class it uses its call alone.
        http=cast("type[PageConnection]", connection),
        loop=_LOOP,
        ws="none",
        # What strangers send that is no request is no news.
        log_level="error",
        access_log=False,
        server_header=False,
        # Nobody says for another where a request comes from, or whether it came by TLS.
        proxy_headers=False,
        # Streams of events end with it.
        timeout_graceful_shutdown=2,
    )
    config.load()
    config.ssl = _context(doors)
    return uvicorn.Server(config)


def _proxy_uid(doors: Doors) -> int | None:
    """Return whose processes are the proxy at a Unix socket. Raises ServeError."""
    if not doors.proxy_user:
        return None
    try:
        return pwd.getpwnam(doors.proxy_user).pw_uid
    except KeyError as error:
        raise ServeError(
            f"--proxy-user: no login {doors.proxy_user!r} on this machine; nginx of Debian is"
            " www-data, and Caddy is caddy"
        ) from error


def _context(doors: Doors) -> ssl.SSLContext | None:
    """Return how it speaks TLS; None where it does not. Raises ServeError."""
    if not doors.has_tls:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(doors.certificate, doors.key)
        if doors.client_ca:
            context.load_verify_locations(doors.client_ca)
            # A browser without one shows a session instead.
            context.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:
        files = f"{doors.certificate}, {doors.key}"
        files += f", {doors.client_ca}" if doors.client_ca else ""
        why = error.strerror or str(error)
        raise ServeError(f"certificates cannot be read ({files}): {why}; see 'ls -l'") from error
    return context


def listening(doors: Doors) -> socket.socket:
    """Return a socket that listens there. Raises ServeError."""
    listener = _listening_at(Path(doors.socket)) if doors.socket else _at_port(doors)
    # Its connections have it from it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES)
    return listener


def _at_port(doors: Doors) -> socket.socket:
    host, port = split_address(doors.listen)
    try:
        listener = socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except ValueError as error:
        raise ServeError(f"{doors.listen} has no port: HOST:PORT, as 127.0.0.1:7436") from error
    except OSError as error:
        told = f"{doors.listen} cannot be listened on: {error.strerror}"
        raise ServeError(f"{told}; 'ss -ltnp' shows who does, port 0 picks a free one") from error
    # Connections have it from here: one whose other end takes nothing more is closed.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    return listener


def _listening_at(path: Path) -> socket.socket:
    """Return a Unix socket that everybody may connect to: the kernel tells who it is."""
    made = path.with_name(f".{path.name}.new")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.unlink(missing_ok=True)
        listener.bind(str(made))
        made.chmod(0o666)
        listener.listen(128)
        # In one step: who connects finds the one before it or this one.
        os.replace(made, path)
    except OSError as error:
        listener.close()
        raise ServeError(
            f"unix:{path} cannot be listened on: {error.strerror}; name a path in a folder of this"
            " user, of 100 letters at most"
        ) from error
    return listener


def told_lines(addresses: Mapping[Role, str]) -> str:
    """Return addresses as lines: with the role where there are several."""
    if len(addresses) == 1:
        return "".join(addresses.values())
    return "\n".join(f"{role.value:<9}{address}" for role, address in addresses.items())


def keep_in_file(path: Path) -> Callable[[Mapping[Role, str]], None]:
    """Return what writes the newest addresses into a file that only its owner reads."""

    def write(addresses: Mapping[Role, str]) -> None:
        made = path.with_name(f".{path.name}.new")
        made.unlink(missing_ok=True)
        # Made by this process, with this mode: a link or a file of another is not followed.
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{told_lines(addresses)}\n")
        made.replace(path)

    return write
