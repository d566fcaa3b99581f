"""`everstep drivers`: what each scheduler was told, and has said, and how old that is."""

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2


@click.command()
@asks_controller
def drivers(ask: Ask) -> None:
    r"""List the isolation drivers: what each scheduler was told, and has said, and when.

    "Waiting" are nodes that are not yet withheld or free there as they are wanted: because a call
    is under way or has failed, because the scheduler was not read yet, or because drivers are
    paused.

    \b
    Examples:
      everstep drivers
      everstep drivers --json | jq '.drivers[] | {driver, age_s, waiting}'
    """
    reply = ask.admin.call(lambda stub: stub.ListDrivers, admin_pb2.ListDriversRequest())
    ask.answer(reply, *_lines(reply, ask.now_ns))


def _lines(reply: admin_pb2.ListDriversReply, now_ns: int) -> Iterator[RenderableType]:
    if reply.paused:
        age = formatting.duration(now_ns - reply.paused_ns)
        yield Text(f"No scheduler is told anything, for {age}: {reply.paused}", style="yellow")
        yield Text("To go on: everstep resume --drivers")
        yield ""
    if not reply.drivers:
        yield "No driver is configured: no scheduler is told anything (docs/operations.md)."
        return
    made = tables.table(
        "driver", "nodes", "withheld", "by others", "read", "waiting", "trouble",
        right=("nodes", "withheld", "by others"),
    )  # fmt: skip
    for one in reply.drivers:
        made.add_row(
            Text(one.driver, style="bold"),
            str(one.nodes),
            str(one.held_ours),
            str(one.held_by_others),
            f"{formatting.duration(round(one.age_s * 1e9))} ago"
            if one.HasField("age_s")
            else "not yet",
            _waiting(one, now_ns),
            _trouble(one),
        )
    yield made


def _waiting(line: admin_pb2.DriverLine, now_ns: int) -> str:
    if not line.waiting:
        return "none"
    age = formatting.duration(now_ns - line.waiting_since_ns)
    return f"{formatting.names(line.waiting)}, for up to {age}"


def _trouble(line: admin_pb2.DriverLine) -> Text:
    if not line.failures:
        return Text(
            f"none; {line.failed_calls} failed calls before" if line.failed_calls else "none"
        )
    return Text(f"{line.failures} failed calls in a row: {line.failure}", style="yellow")


COMMANDS = (drivers,)
