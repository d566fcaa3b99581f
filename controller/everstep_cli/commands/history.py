"""Command about the history: incidents, hours of jobs and days of nodes, over weeks."""

import click

from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.history import history_line
from everstep_proto.generated import admin_pb2

_DAY_NS = 86_400_000_000_000
# As people ask, and as the history has them.
_KINDS = {
    "incidents": "incident",
    "hours": "job-hour",
    "nodes": "node-day",
    "fleet": "fleet-day",
}


@click.command()
@click.argument("what", metavar="incidents|hours|nodes|fleet", type=click.Choice([*_KINDS]))
@click.argument("key", metavar="[ID]", default="")
@click.option(
    "--last",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, 10_000),
    default=14,
    show_default=True,
    help="How far back.",
)
@asks_controller
def history(ask: Ask, what: str, key: str, days: int) -> None:
    r"""Show what is kept for a year: incidents, hours of jobs, and days of nodes.

    Of nodes it has the days on which they were not just healthy; of all together it has each day.

    ID is that of an incident or a job, or the name of a node. With --json every row is one line of
    JSON; "told" in it is JSON again.

    \b
    Examples:
      everstep history incidents --last 90
      everstep history incidents llama-70b-17.3
      everstep history hours llama-70b-17 --json | jq -r .told
      everstep history nodes gpu-0042 --last 400
    """
    since_ns = ask.now_ns - days * _DAY_NS
    asked = admin_pb2.GetHistoryRequest(kind=_KINDS[what], key=key, since_ns=max(0, since_ns))
    ask.answer_each(ask.admin.stream(lambda stub: stub.GetHistory, asked, key), history_line)


COMMANDS = (history,)
