"""Command for planned work: `everstep drain`, by which jobs leave a node at a step boundary."""

import click
from rich.text import Text

from everstep_cli.completion import node_names
from everstep_cli.session import Ask, asks_controller


@click.command()
@click.argument("node", metavar="NODE", shell_complete=node_names)
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def drain(ask: Ask, node: str, reason: str) -> None:
    r"""Have jobs leave NODE at a step boundary, and let no new ranks go there.

    Nothing is computed twice: a job stops after a step that can be restored, and goes on with a
    spare, or with fewer nodes if it may. If it can do neither it stays until a node joins. The
    answer says what will happen; 'everstep why NODE' and 'everstep events' say how far it is, and
    'everstep release NODE' undoes it. To have a node left at once, use 'everstep isolate'.

    \b
    Example:
      everstep drain gpu-0042 --reason "fan replaced on Tuesday"
    """
    reply = ask.admin.drain(node, reason)
    lines = list(reply.plans) or ["no job has ranks there"]
    ask.answer(
        reply,
        Text.assemble((reply.node, "bold"), " takes no new ranks."),
        *(Text(line) for line in lines),
    )
