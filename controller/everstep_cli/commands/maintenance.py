"""Commands about maintenance windows: nodes that somebody is going to work on."""

import click

from everstep_cli.client.admin import NameNotFoundError
from everstep_cli.client.times import RequestedTime, TimeError, parse_duration_ns, parse_time
from everstep_cli.commands.completion import window_names
from everstep_cli.commands.next_command import Commands
from everstep_cli.commands.node_lists import nodes_argument
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.maintenance import window_list, window_sheet
from everstep_proto.generated import admin_pb2


def _when(_: click.Context, __: click.Parameter, text: str) -> RequestedTime:
    try:
        return parse_time(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from error


def _duration(_: click.Context, __: click.Parameter, text: str) -> int:
    try:
        return parse_duration_ns(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from error


@click.group(cls=Commands)
def maintenance() -> None:
    r"""Plan maintenance windows: times in which nodes are worked on.

    Ten minutes before a window (maintenance_drain_lead_s) jobs begin to leave its nodes: each stops
    after a step that can be restored and goes on with a spare, or with fewer nodes if it may. A job
    that can do neither trains on until shortly before the beginning (maintenance_stop_lead_s) and
    then waits for the end; 'list' names such jobs in advance. No work is lost. Within the
    window nothing is judged: the nodes may be silent, reboot, or get other hardware. At its end
    they are checked, and then take ranks again. The ledger counts all of it as planned time.

    \b
    Examples:
      everstep maintenance add gpu-0042 gpu-0043 --from "in 2h" --for 90m --reason "new fans"
      everstep maintenance list
      everstep maintenance cancel m-3
    """


@maintenance.command()
@nodes_argument
@click.option(
    "--from",
    "begin",
    metavar="WHEN",
    required=True,
    callback=_when,
    help="now, 'in 2h', or 2026-12-24T08:00; UTC without an offset such as +01:00.",
)
@click.option(
    "--for",
    "lasts_ns",
    metavar="DURATION",
    required=True,
    callback=_duration,
    help="45m, 2h, '1h 30m' or 1d.",
)
@click.option("--reason", default="", help="Kept in the audit log, and shown.")
@asks_controller
def add(ask: Ask, names: list[str], begin: RequestedTime, lasts_ns: int, reason: str) -> None:
    r"""Plan a window for NODES, and show its effect on jobs.

    \b
    Examples:
      everstep maintenance add gpu-0042 --from now --for 1h --reason "DIMM 3"
      everstep maintenance add 'gpu-[0001-0016]' --from "in 2h" --for 90m --reason "new fans"
      everstep maintenance add gpu-0042 --from 2026-12-24T08:00+01:00 --for "2h 30m"
    """
    request = admin_pb2.AddMaintenanceRequest(
        nodes=names, begin_ns=begin.at_ns, in_ns=begin.in_ns, duration_ns=lasts_ns, reason=reason
    )
    one = names[0] if len(names) == 1 else ""
    window = ask.admin.call(lambda stub: stub.AddMaintenance, request, one)
    ask.answer(window, *window_sheet(window, ask.now_ns))


@maintenance.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are over or were cancelled.")
@asks_controller
def list_windows(ask: Ask, every: bool) -> None:
    r"""List the windows that are planned or have begun, and the jobs that they interrupt.

    \b
    Examples:
      everstep maintenance list
      everstep maintenance list --all --json | jq '.windows[] | select(.interrupts)'
    """
    request = admin_pb2.ListMaintenanceRequest(all=every)
    reply = ask.admin.call(lambda stub: stub.ListMaintenance, request)
    ask.answer(reply, *window_list(reply.windows, ask.now_ns))


@maintenance.command()
@click.argument("window", metavar="ID", shell_complete=window_names)
@asks_controller
def cancel(ask: Ask, window: str) -> None:
    r"""Cancel a window; one that has begun ends now, and its nodes are checked.

    \b
    Example:
      everstep maintenance cancel m-3
    """
    request = admin_pb2.CancelMaintenanceRequest(window=window)
    try:
        reply = ask.admin.call(lambda stub: stub.CancelMaintenance, request, window)
    except NameNotFoundError as error:
        raise NameNotFoundError(
            f"no maintenance window named {window!r}; 'everstep maintenance list' has them"
        ) from error
    ask.answer(reply, *window_sheet(reply, ask.now_ns))


COMMANDS = (maintenance,)
