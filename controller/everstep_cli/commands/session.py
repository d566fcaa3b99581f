"""Session of a command: the connection to the controller, the console it prints on, the time."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.text import Text

from everstep_cli.client.admin import Admin, AdminError, UnusableError
from everstep_cli.client.connection import Connection
from everstep_cli.views import json_output
from everstep_proto.local.address import default_address, default_secret_file
from everstep_proto.tls import TlsSettings

P = ParamSpec("P")
M = TypeVar("M", bound=Message)


class _UnusableError(click.ClickException):
    """As wrong as an unknown option, but the usage would not help."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class AdminSession:
    """Connections, console, clock and waits of a command; handed in as click's ``obj``."""

    connect: Callable[[Connection], AbstractContextManager[Admin]]
    console: Console
    now_ns: Callable[[], int]
    wait: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Ask:
    """An open connection to the controller, and the form in which the user wants the answer."""

    admin: Admin
    console: Console
    now_ns: int
    as_json: bool
    session: AdminSession
    # It is drawn again and again, in the place of what was drawn before.
    live: bool = False

    @property
    def colours(self) -> bool:
        """Return whether the answer is drawn on a terminal that shows colours."""
        return self.console.is_terminal and self.console.color_system is not None

    def again_and_again(self, pause_s: float) -> Iterator["Ask"]:
        """Yield for ever what to ask and draw with, with a pause between."""
        while True:
            yield replace(self, now_ns=self.session.now_ns(), live=True)
            self.session.wait(pause_s)

    def page(self, lines: Sequence[str]) -> None:
        """Print lines as they are; through a pager where a terminal is too small for them."""
        console, whole = self.console, "\n".join(lines) + "\n"
        if self.live and console.is_terminal:
            # One write, so that nobody sees it half drawn: home, clear, and what fits.
            whole = "\x1b[H\x1b[2J" + "\n".join(lines[: console.height - 1])
        elif console.is_terminal and _rows(lines, console.width) >= console.height:
            click.echo_via_pager(whole)
            return
        console.file.write(whole)
        console.file.flush()

    def answer(self, message: Message, *views: RenderableType) -> None:
        """Print the message as JSON, or its views; what is to be copied stays one line."""
        if self.as_json:
            click.echo(json_output.to_json(message))
            return
        for view in views:
            is_copied = isinstance(view, Text) and bool(view.no_wrap)
            self.console.print(view, soft_wrap=is_copied)

    def answer_each(self, messages: Iterable[M], view: Callable[[M], RenderableType]) -> None:
        """Print each message as it comes: one line of JSON, or the view of it."""
        for message in messages:
            if self.as_json:
                click.echo(json_output.to_line(message))
            else:
                self.console.print(view(message), soft_wrap=True)


def _rows(lines: Iterable[str], width: int) -> int:
    return sum(len(line) // max(1, width) + 1 for line in lines)


_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print JSON; keys as in admin.proto."),
    click.option(
        "--controller",
        metavar="ADDRESS",
        envvar="EVERSTEP_CONTROLLER",
        default=default_address,
        show_default="the socket of this machine's",
        show_envvar=True,
        help="The controller to ask: HOST:PORT, or unix:/path. Of several, with commas between "
        "them, the active one is asked.",
    ),
    click.option(
        "--secret-file",
        type=click.Path(path_type=Path),
        envvar="EVERSTEP_SECRET_FILE",
        default=default_secret_file,
        show_default="that of this machine's controller",
        show_envvar=True,
        help="File with the secret of a controller at HOST:PORT on loopback, without TLS.",
    ),
    click.option(
        "--timeout",
        type=float,
        default=10.0,
        show_default=True,
        help="Seconds to wait for its answer.",
    ),
    click.option(
        "--tls-ca",
        type=click.Path(path_type=Path),
        envvar="EVERSTEP_TLS_CA",
        show_envvar=True,
        help="File with the authority that signed the controller's certificate.",
    ),
    click.option(
        "--tls-certificate",
        type=click.Path(path_type=Path),
        envvar="EVERSTEP_TLS_CERTIFICATE",
        show_envvar=True,
        help="File with your certificate.",
    ),
    click.option(
        "--tls-key",
        type=click.Path(path_type=Path),
        envvar="EVERSTEP_TLS_KEY",
        show_envvar=True,
        help="File with its private key.",
    ),
    click.option(
        "--tls-server-name",
        metavar="NAME",
        default="",
        envvar="EVERSTEP_TLS_SERVER_NAME",
        show_envvar=True,
        help="Name in the controller's certificate, where it is not the address.",
    ),
)


def asks_controller(command: Callable[Concatenate[Ask, P], None]) -> Callable[..., None]:
    """Give a command an open connection as first argument, and the options that choose it."""

    @functools.wraps(command)
    def with_connection(*args: P.args, **kwargs: P.kwargs) -> None:
        session = click.get_current_context().find_object(AdminSession)
        if session is None:
            raise RuntimeError("a command needs a Session as click's obj")
        as_json = bool(kwargs.pop("as_json"))
        connection = connection_of(kwargs)
        try:
            with session.connect(connection) as admin:
                ask = Ask(admin, session.console, session.now_ns(), as_json, session)
                command(ask, *args, **kwargs)
        except UnusableError as error:
            raise _UnusableError(str(error)) from error
        except AdminError as error:
            raise click.ClickException(str(error)) from error

    wrapped: Callable[..., None] = with_connection
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def connection_of(options: dict[str, object]) -> Connection:
    """Take the connection's options out of a command's. Raises click.UsageError for bad ones."""
    connection = Connection(
        address=str(options.pop("controller")),
        tls=TlsSettings(
            ca=_path(options.pop("tls_ca")),
            certificate=_path(options.pop("tls_certificate")),
            key=_path(options.pop("tls_key")),
            server_name=str(options.pop("tls_server_name")),
        ),
        secret_file=Path(str(options.pop("secret_file"))),
        timeout_s=float(str(options.pop("timeout"))),
    )
    if problem := connection.problem():
        raise click.UsageError(problem)
    return connection


def _path(value: object) -> Path | None:
    return value if isinstance(value, Path) else None
