"""`everstep version`: the version of this command, and of the controller that it talks to."""

import json

import click
from rich.table import Table
from rich.text import Text

from everstep_cli.client.admin import AdminError
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import formatting, json_output, tables
from everstep_common.version import VERSION
from everstep_proto.generated import admin_pb2


@click.command()
@asks_controller
def version(ask: Ask) -> None:
    r"""Show the version of this command and of the controller.

    A controller that does not answer is reported, but the exit code stays 0.

    \b
    Example:
      everstep version --json
    """
    detail, trouble = None, ""
    try:
        request = admin_pb2.GetControllerRequest()
        detail = ask.admin.call(lambda stub: stub.GetController, request)
    except AdminError as error:
        trouble = str(error)
    if ask.as_json:
        controller = json_output.to_dict(detail) if detail is not None else None
        click.echo(json.dumps({"everstep": VERSION, "controller": controller}, indent=2))
        return
    ask.console.print(f"everstep {VERSION}", highlight=False)
    if detail is None:
        ask.console.print(Text(f"controller: {trouble}", style="yellow"))
    else:
        ask.console.print(_sheet(detail, ask.now_ns))


def _sheet(detail: admin_pb2.ControllerDetail, now_ns: int) -> Table:
    return tables.facts(
        [
            ("controller", detail.version),
            ("cluster", detail.cluster_id),
            ("mode", detail.mode),
            ("term", str(detail.term)),
            ("up for", formatting.duration(now_ns - detail.started_ns)),
            ("journal", f"{detail.journal_events} events"),
            ("budgets", detail.budgets),
            ("paused", " ".join(detail.paused)),
            ("drivers", Text(_paused(detail), style="yellow")),
            ("halted", Text(detail.halted, style="bold red")),
        ]
    )


def _paused(detail: admin_pb2.ControllerDetail) -> str:
    return detail.drivers_paused and f"no scheduler is told anything: {detail.drivers_paused}"


COMMANDS = (version,)
