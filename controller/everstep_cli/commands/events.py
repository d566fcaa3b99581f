"""`everstep events`: what happened and what was decided, and what happens from now on."""

import time
from collections.abc import Callable, Iterator

import click

from everstep_cli.client.admin import Admin, AdminError, NameNotFoundError
from everstep_cli.client.times import RequestedTime, TimeError, parse_since
from everstep_cli.commands.completion import any_names
from everstep_cli.commands.node_lists import single_name
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.findings import event_line
from everstep_proto.generated import admin_pb2


def _since(_: click.Context, __: click.Parameter, text: str | None) -> RequestedTime | None:
    try:
        return None if text is None else parse_since(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Wait for new events and print them.")
@click.option(
    "--subject",
    default="",
    metavar="NAME",
    callback=single_name,
    help="Only events of this node or job.",
    shell_complete=any_names,
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    help="At most so many past events, the newest; 100, or 10,000 with --since.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=_since,
    help="Only from then on: 2h (ago), or 2026-12-24T08:00; UTC without an offset.",
)
@asks_controller
def events(
    ask: Ask, follow: bool, subject: str, limit: int | None, since: RequestedTime | None
) -> None:
    r"""List what happened and what was decided, oldest first.

    With --json every event is one line of JSON.

    \b
    Examples:
      everstep events --follow
      everstep events --subject gpu-0042 --limit 20
      everstep events --since 2h
      everstep events --since 2026-12-24T08:00 --json | jq -r .message
    """

    def say(line: str) -> None:
        click.echo(line, err=True)

    told = (
        follow_events(ask.admin, subject, limit or 0, say, since=since)
        if follow
        else _events(ask.admin, subject, limit or 0, since, follow=False)
    )
    ask.answer_each(told, event_line)


def _events(
    admin: Admin, subject: str, limit: int, since: RequestedTime | None, *, follow: bool
) -> Iterator[admin_pb2.Event]:
    request = admin_pb2.WatchEventsRequest(subject=subject, limit=limit, follow=follow)
    if since is not None:
        request.since_ns, request.within_ns = since.at_ns or 0, since.in_ns
    return admin.stream(lambda stub: stub.WatchEvents, request, subject, endless=follow)


# More lines than a controller makes while it is away.
_MISSED_MAX = 10_000
_AGAIN_S = 1.0


def follow_events(
    admin: Admin,
    subject: str,
    limit: int,
    say: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
    since: RequestedTime | None = None,
) -> Iterator[admin_pb2.Event]:
    """Yield old events and then new ones, for ever; ``say`` that the controller is away, and back.

    Raises AdminError when it could not be asked even once.
    """
    newest, away = 0, False
    while True:
        try:
            seen = newest > 0
            first = _MISSED_MAX if seen else limit
            start = None if seen else since
            for event in _events(admin, subject, first, start, follow=True):
                if away:
                    away = False
                    say("the controller is back")
                if event.id > newest:
                    newest = event.id
                    yield event
        except AdminError as error:
            if not newest or isinstance(error, NameNotFoundError):
                raise
            if not away:
                away = True
                say("the controller is away; waiting for it, end with Ctrl-C")
        wait(_AGAIN_S)


COMMANDS = (events,)
