"""Commands about nodes, findings and events: the state of each, and the reason for it."""

import time
from collections.abc import Callable, Iterator

import click
from rich.text import Text

from everstep_cli.client.admin import AdminError, NameNotFoundError, Reader
from everstep_cli.commands.completion import node_names
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.findings import event_line, explanation, finding_list
from everstep_cli.views.jobs import fleet_incident_list
from everstep_cli.views.nodes import halt, node_list, node_sheet
from everstep_proto.generated import admin_pb2


@click.group(invoke_without_command=True)
@asks_controller
def nodes(ask: Ask) -> None:
    r"""List all nodes: state, claims, findings, hardware.

    A node takes ranks only while no claim is on it, and not while it is doubtful: its agent is away
    or hangs. Agents that are not let in are listed below.

    \b
    Examples:
      everstep nodes
      everstep nodes --json | jq -r '.nodes[] | select(.state != "healthy").node'
      everstep nodes --json | jq -r '.nodes[] | select(.doubt != "") | .node + ": " + .doubt'
      everstep nodes remove gpu-0042 --reason "returned to the vendor"
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    reply = ask.admin.nodes()
    shown = node_list(reply.nodes, reply.refused_agents, ask.now_ns)
    ask.answer(reply, *halt(reply.halted), *shown)


@nodes.command()
@click.argument("name", metavar="NAME", shell_complete=node_names)
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def remove(ask: Ask, name: str, reason: str) -> None:
    r"""Forget node NAME, which is gone for good.

    Only a node that is lost is removed, and only where no job waits for it to come back. Its
    findings, claims and history go with it; what a scheduler withholds stays as it is there. If its
    agent connects again, it is a new node, and is checked as such.

    \b
    Example:
      everstep nodes remove gpu-0042 --reason "returned to the vendor"
    """
    reply = ask.admin.remove_node(name, reason)
    ask.answer(reply, Text.assemble((reply.node, "bold"), " is forgotten."))


@click.command()
@click.argument("name", metavar="NAME", shell_complete=node_names)
@asks_controller
def node(ask: Ask, name: str) -> None:
    r"""Show one node: hardware, findings, claims, ranks.

    \b
    Examples:
      everstep node gpu-0042
      everstep node gpu-0042 --json | jq .findings
    """
    reply = ask.admin.node(name)
    ask.answer(reply, *node_sheet(reply, ask.now_ns))


@click.command()
@click.argument("name", metavar="NAME", shell_complete=node_names)
@asks_controller
def why(ask: Ask, name: str) -> None:
    r"""Explain the state of a node or a job.

    Answers with one sentence, then with the decisions that led there.

    \b
    Examples:
      everstep why gpu-0042
      everstep why llama-70b
    """
    reply = ask.admin.why(name)
    ask.answer(reply, *explanation(reply, name))


@click.command()
@click.option(
    "--node", "name", default="", help="Only those of this node.", shell_complete=node_names
)
@asks_controller
def findings(ask: Ask, name: str) -> None:
    r"""List open findings, worst first.

    A finding stays open until its component is seen healthy again.

    \b
    Examples:
      everstep findings
      everstep findings --node gpu-0042
    """
    reply = ask.admin.findings(name)
    ask.answer(reply, *finding_list(reply.findings, ask.now_ns))


@click.command()
@click.option("--open", "open_only", is_flag=True, help="Only open ones.")
@asks_controller
def incidents(ask: Ask, open_only: bool) -> None:
    r"""List incidents, newest first: faults with one cause.

    An incident has the findings, deaths and silences that one cause explains.

    \b
    Examples:
      everstep incidents --open
      everstep incidents --json | jq '.incidents[] | select(.cause == "node")'
    """
    reply = ask.admin.incidents(open_only=open_only)
    ask.answer(reply, *fleet_incident_list(reply.incidents))


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Wait for new events and print them.")
@click.option("--subject", default="", metavar="NAME", help="Only events of this node or job.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Number of past events to print first.",
)
@asks_controller
def events(ask: Ask, follow: bool, subject: str, limit: int) -> None:
    r"""List what happened and what was decided, oldest first.

    With --json every event is one line of JSON.

    \b
    Examples:
      everstep events --follow
      everstep events --subject gpu-0042 --limit 20
    """
    told = (
        follow_events(ask.admin, subject, limit, lambda line: click.echo(line, err=True))
        if follow
        else ask.admin.events(subject, limit, follow=False)
    )
    ask.answer_each(told, event_line)


# More lines than a controller makes while it is away.
_MISSED_MAX = 10_000
_AGAIN_S = 1.0


def follow_events(
    admin: Reader,
    subject: str,
    limit: int,
    say: Callable[[str], None],
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[admin_pb2.Event]:
    """Yield old events and then new ones, for ever; ``say`` that the controller is away, and back.

    Raises AdminError when it could not be asked even once.
    """
    newest, away = 0, False
    while True:
        try:
            for event in admin.events(subject, _MISSED_MAX if newest else limit, follow=True):
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


COMMANDS = (nodes, node, why, findings, incidents, events)
