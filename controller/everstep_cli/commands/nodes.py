"""Commands about nodes and findings: the state of each, and the reason for it."""

from collections.abc import Iterator, Mapping

import click
from rich.text import Text

from everstep_cli.client.admin import AdminError, UnusableError, list_nodes
from everstep_cli.commands.completion import any_names, group_names, node_names
from everstep_cli.commands.node_lists import (
    all_named_nodes,
    nodes_argument,
    several_words,
    single_name,
)
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.commands.several_nodes import each_node, refuse_unknown
from everstep_cli.views.findings import explanation, finding_list
from everstep_cli.views.fleet import fleet_summary, node_lines, refusals
from everstep_cli.views.jobs import fleet_incident_list
from everstep_cli.views.nodes import node_sheet
from everstep_proto.generated import admin_pb2

# Of a fleet of so many nodes, all are listed unasked.
_FEW = 40
_WATCH_S = 2.0


class _NodesGroup(click.Group):
    """The list of nodes and its commands; says how single nodes are asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant; what is none may be the name of a node."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            there = ", ".join(f"everstep nodes {name}" for name in self.list_commands(ctx))
            names = " ".join(args)
            message = (
                f"{args[0]!r} is nothing to do with the list of nodes; there is: {there}; of single"
                f" nodes: everstep node {names}, or everstep nodes --node {args[0]}"
            )
            raise click.UsageError(message, ctx) from error


@click.group(cls=_NodesGroup, invoke_without_command=True)
@click.option("--all", "-a", "every", is_flag=True, help="List every node of a large fleet, too.")
@click.option("--summary", is_flag=True, help="List none, only tell how many there are.")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    callback=several_words,
    help="Only those that are: a state, claimed, doubtful, away.",
)
@click.option(
    "--domain", "domains", metavar="NAME", multiple=True, help="Only those of this failure domain."
)
@click.option(
    "--group",
    "groups",
    metavar="NAME",
    multiple=True,
    callback=several_words,
    help="Only those in this group.",
    shell_complete=group_names,
)
@click.option(
    "--finding",
    "conditions",
    metavar="CONDITION",
    multiple=True,
    callback=several_words,
    help="Only those on which this condition is open.",
)
@click.option(
    "--node",
    "names",
    metavar="NODES",
    multiple=True,
    callback=all_named_nodes,
    help="Only these: gpu-0042, or gpu-[0001-0016]; also several times.",
    shell_complete=node_names,
)
@click.option(
    "--sort",
    type=click.Choice(["name", "state", "since", "findings", "domain"]),
    default="name",
    show_default=True,
    help="Order: worst state, latest change, most findings first.",
)
@click.option(
    "--long", "-l", "hardware", is_flag=True, help="Show domain, groups and hardware as well."
)
@click.option(
    "--watch",
    metavar="[SECONDS]",
    is_flag=False,
    flag_value=_WATCH_S,
    type=click.FloatRange(min=0.1),
    help=f"Draw it again every so many seconds ({_WATCH_S:g}).",
)
@asks_controller
def nodes(ask: Ask, /, watch: float | None, every: bool, hardware: bool, **choice: object) -> None:
    r"""List nodes: first how many are in which state, then those that are not simply healthy.

    Up to 40 nodes, and whatever an option selects, are all listed; of a larger fleet --all lists
    the healthy ones too. Each node is one line, which says all there is to say of it. A node takes
    ranks only while no claim is on it, and not while it is doubtful: its agent is away or hangs.
    Agents that are not let in are listed below. --json has every node that is selected.

    \b
    Examples:
      everstep nodes
      everstep nodes --state lost,suspect --sort since
      everstep nodes --finding XidFatal --domain rack-07
      everstep nodes --group batch --state suspect
      everstep nodes --node 'gpu-[0001-0016]' --long
      everstep nodes --all | grep H100
      everstep nodes --watch
      everstep nodes --json | jq -r '.nodes[] | select(.doubt != "") | .node + ": " + .doubt'
      everstep nodes remove gpu-0042 --reason "returned to the vendor"
      everstep nodes lost 'gpu-[0001-0512]' --reason "hall 2 has no power"
      everstep nodes revoke gpu-0042 --reason "its disk was stolen"
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    request = _request(choice)
    large = not (every or ask.as_json or request.summary_only or _selects(request))
    if watch is None:
        _show_nodes(ask, request, large=large, hardware=hardware)
        return
    for count, now in enumerate(ask.again_and_again(watch)):
        try:
            _show_nodes(now, request, large=large, hardware=hardware)
        except AdminError as error:
            if not count or isinstance(error, UnusableError):
                raise
            click.echo(f"{error}; it is asked again, end with Ctrl-C", err=True)


def _request(choice: Mapping[str, object]) -> admin_pb2.ListNodesRequest:
    request = admin_pb2.ListNodesRequest(sort=str(choice["sort"]))
    for field, name in (
        (request.names, "names"),
        (request.states, "states"),
        (request.domains, "domains"),
        (request.groups, "groups"),
        (request.findings, "conditions"),
    ):
        given = choice[name]
        assert isinstance(given, list | tuple)
        field.extend(given)
    request.summary_only = bool(choice["summary"])
    return request


def _selects(request: admin_pb2.ListNodesRequest) -> bool:
    chosen = (request.names, request.states, request.domains, request.groups, request.findings)
    return any(chosen)


def _show_nodes(
    ask: Ask, request: admin_pb2.ListNodesRequest, *, large: bool, hardware: bool
) -> None:
    """Show what is asked for; of a ``large`` fleet only what is not simply healthy."""
    asked = admin_pb2.ListNodesRequest(troubled=large)
    asked.MergeFrom(request)
    reply = list_nodes(ask.admin, asked)
    if not reply.HasField("summary") and (_selects(request) or request.summary_only):
        raise AdminError(
            "this controller is of an older version, which lists all nodes or none: leave the "
            "options out, or update it; 'everstep version' compares"
        )
    if large and reply.summary.fleet_nodes <= _FEW:
        reply = list_nodes(ask.admin, request)
        large = False
    if ask.as_json:
        ask.answer(reply)
        return
    ask.page([*_lines(reply, ask, large=large, hardware=hardware)])


def _lines(
    reply: admin_pb2.ListNodesReply, ask: Ask, *, large: bool, hardware: bool
) -> Iterator[str]:
    if reply.halted:
        yield f"The controller acts on nothing: {reply.halted}"
        yield ""
    if reply.drivers_paused:
        yield f"No scheduler is told anything: {reply.drivers_paused}"
        yield ""
    if reply.HasField("summary"):
        yield from fleet_summary(reply.summary)
    if reply.nodes:
        yield ""
        yield from node_lines(reply.nodes, ask.now_ns, hardware=hardware, colours=ask.colours)
    healthy = reply.summary.nodes - reply.summary.troubled
    if large and healthy:
        yield ""
        yield f"{healthy} healthy nodes are not listed; 'everstep nodes --all' lists them, too."
    if reply.refused_agents:
        yield ""
        yield from refusals(reply.refused_agents, ask.now_ns)


@nodes.command()
@nodes_argument
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def remove(ask: Ask, names: list[str], reason: str) -> None:
    r"""Forget NODES, which are gone for good: decommissioned, or returned to the vendor.

    Only a node that is lost is removed, and only where no job waits for it to come back. Its
    findings, claims and history go with it; what a scheduler withholds stays as it is there. If its
    agent connects again, it is a new node, and is checked as such.

    \b
    Examples:
      everstep nodes remove gpu-0042 --reason "returned to the vendor"
      everstep nodes remove 'gpu-[0001-0016]' --reason "rack 7 was decommissioned"
    """

    def forget(name: str) -> admin_pb2.RemoveNodeReply:
        request = admin_pb2.RemoveNodeRequest(node=name, reason=reason)
        return ask.admin.call(lambda stub: stub.RemoveNode, request, name)

    each_node(ask, names, forget, lambda name, _: [Text.assemble((name, "bold"), " is forgotten.")])


@nodes.command()
@nodes_argument
@click.option("--reason", required=True, help="Kept in the audit log: how it is known.")
@asks_controller
def lost(ask: Ask, names: list[str], reason: str) -> None:
    r"""Say that NODES are off, where the controller alone cannot know it.

    A controller that hears at most half of its fleet may be the one that is cut off: silent nodes
    stay doubtful then, and whatever trains there goes on. Of nodes that you know to be off, by
    their power or their management network, say so: jobs go on without them, on spares. Only a
    silent node is taken for lost; if it lives after all, its ranks are stopped when it is back.

    \b
    Examples:
      everstep nodes lost gpu-0042 --reason "its power supply burned"
      everstep nodes lost 'gpu-[0001-0512]' --reason "hall 2 has no power"
      everstep nodes --state doubtful --json | jq -r '.nodes[].node'
    """

    def declare(name: str) -> admin_pb2.DeclareLostReply:
        request = admin_pb2.DeclareLostRequest(node=name, reason=reason)
        return ask.admin.call(lambda stub: stub.DeclareLost, request, name)

    def told(name: str, _: admin_pb2.DeclareLostReply) -> list[Text]:
        return [Text.assemble((name, "bold"), " is lost: its jobs go on without it.")]

    each_node(ask, names, declare, told)


@click.command()
@nodes_argument
@asks_controller
def node(ask: Ask, names: list[str]) -> None:
    r"""Show NODES in full: hardware, findings, claims, ranks.

    \b
    Examples:
      everstep node gpu-0042
      everstep node 'gpu-[0041-0042]'
      everstep node gpu-0042 --json | jq .findings
    """

    def detail(name: str) -> admin_pb2.NodeDetail:
        request = admin_pb2.GetNodeRequest(node=name)
        return ask.admin.call(lambda stub: stub.GetNode, request, name)

    each_node(ask, names, detail, lambda _, reply: node_sheet(reply, ask.now_ns))


@click.command()
@click.argument("name", metavar="NAME", callback=single_name, shell_complete=any_names)
@asks_controller
def why(ask: Ask, name: str) -> None:
    r"""Explain the state of a node or a job.

    Answers with one sentence, then with the decisions that led there.

    \b
    Examples:
      everstep why gpu-0042
      everstep why llama-70b
    """
    reply = ask.admin.call(lambda stub: stub.Why, admin_pb2.WhyRequest(name=name), name)
    ask.answer(reply, *explanation(reply, name))


@click.command()
@click.option(
    "--node",
    "names",
    metavar="NODES",
    multiple=True,
    callback=all_named_nodes,
    help="Only those of these nodes: gpu-0042, or gpu-[0001-0016]; also several times.",
    shell_complete=node_names,
)
@click.option("--all", "every", is_flag=True, help="One by one, also those of one cause.")
@asks_controller
def findings(ask: Ask, names: list[str], every: bool) -> None:
    r"""List open findings, worst first.

    A finding stays open until its component is seen healthy again. Those of one condition that say
    the same of several nodes or devices are one line; --all and --json have each.

    \b
    Examples:
      everstep findings
      everstep findings --all
      everstep findings --node 'gpu-[0001-0016]'
    """
    wanted, several = frozenset(names), len(names) > 1
    if several:
        refuse_unknown(ask, names)
    node = "" if several else "".join(names)
    request = admin_pb2.ListFindingsRequest(node=node)
    reply = ask.admin.call(lambda stub: stub.ListFindings, request, node)
    if several:
        found = [one for one in reply.findings if one.node in wanted]
        reply = admin_pb2.ListFindingsReply(findings=found)
    ask.answer(reply, *finding_list(reply.findings, ask.now_ns, every=every))


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
    request = admin_pb2.ListIncidentsRequest(open=open_only)
    reply = ask.admin.call(lambda stub: stub.ListIncidents, request)
    ask.answer(reply, *fleet_incident_list(reply.incidents))


COMMANDS = (nodes, node, why, findings, incidents)
