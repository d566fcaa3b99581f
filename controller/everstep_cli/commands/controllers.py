"""`everstep controllers`: which one is active, which stand by, and how one hands over."""

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

# A standby tells of itself twice a second.
_SILENT_S = 5.0


@click.command()
@asks_controller
def controllers(ask: Ask) -> None:
    r"""List the controllers of the cluster: the active one, and those that stand by.

    "Behind" are events of the journal that a standby has not folded yet, and for how long.

    \b
    Examples:
      everstep controllers
      everstep controllers --json | jq -r '.controllers[] | select(.active) | .address'
    """
    reply = ask.admin.call(lambda stub: stub.ListControllers, admin_pb2.ListControllersRequest())
    ask.answer(reply, *_lines(reply))


@click.group()
def controller() -> None:
    r"""Have the active controller let a standby take over.

    \b
    Example:
      everstep controller handover --reason "upgrade of ctl-1"
    """


@controller.command()
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def handover(ask: Ask, reason: str) -> None:
    r"""Let a standby take over now, as before an upgrade of the active controller.

    The active one writes all that it knows, and ends; its unit starts it again as a standby.

    \b
    Example:
      everstep controller handover --reason "upgrade of ctl-1"
    """
    request = admin_pb2.HandOverRequest(reason=reason)
    reply = ask.admin.call(lambda stub: stub.HandOver, request)
    named = reply.successor.address or f"process {reply.successor.pid} on {reply.successor.host}"
    ask.answer(reply, f"{named} takes over; see 'everstep controllers'")


def _lines(reply: admin_pb2.ListControllersReply) -> Iterator[RenderableType]:
    made = tables.table("controller", "role", "for", "behind", "version", "process")
    for one in reply.controllers:
        made.add_row(
            Text(one.address or "unknown", style="bold"),
            Text("active", style="green") if one.active else _standby(one),
            formatting.duration(round(one.since_s * 1e9)),
            "" if one.active else f"{one.behind_events} events, {one.behind_s:.1f} s",
            one.version,
            f"{one.pid} on {one.host}" + (", answers" if one.answers else ""),
        )
    yield made
    if not reply.alone:
        yield _database(reply)
    if reply.alone:
        yield "The journal is a file: there are no standbys (docs/postgresql.md)."
    elif not any(one.active for one in reply.controllers):
        yield Text("No controller is active: nobody writes the journal now.", style="bold red")
    elif len(reply.controllers) == 1:
        yield Text("No controller stands by: a dead machine means a person.", style="yellow")


def _database(reply: admin_pb2.ListControllersReply) -> str:
    server = f"the database at {reply.database}" if reply.database else "the database"
    beside = f", standbys: {', '.join(reply.database_standbys)}" if reply.database_standbys else ""
    if reply.synchronous:
        return f"Commits are on a second server before they count ({server}{beside})."
    return (
        f"Commits are on one server alone ({server}{beside}); docs/postgresql.md, what is durable."
    )


def _standby(line: admin_pb2.ControllerLine) -> Text:
    if line.seen_s < _SILENT_S:
        return Text("standby")
    age = formatting.duration(round(line.seen_s * 1e9))
    return Text(f"standby, silent for {age}", style="yellow")


COMMANDS = (controllers, controller)
