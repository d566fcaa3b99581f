"""`everstep policy`: how far automation may go, by which rule, and what enforcing would do."""

from collections.abc import Iterator, Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.client.times import TimeError, parse_duration_ns
from everstep_cli.commands.completion import node_names
from everstep_cli.commands.node_lists import single_name
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

_COLOURS = {"enforce": "bold", "advise": "yellow", "observe": "dim"}
# So many nodes are named in a line; --json has all.
_NAMED_MAX = 8


def _duration(_: click.Context, __: click.Parameter, text: str) -> int:
    try:
        return parse_duration_ns(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument(
    "subject",
    metavar="[NODE|CONDITION]",
    default="",
    callback=single_name,
    shell_complete=node_names,
)
@click.option(
    "--what-if",
    "what_if",
    type=click.Choice(["enforce"]),
    help="Count what automation would have done in this mode, with the budgets that hold now.",
)
@click.option(
    "--last",
    "last_ns",
    metavar="TIME",
    default="7d",
    show_default=True,
    callback=_duration,
    help="Within this time: 7d, 12h.",
)
@asks_controller
def policy(ask: Ask, subject: str, what_if: str | None, last_ns: int) -> None:
    r"""Say how far automation may go, and which rule decides that.

    For a node: each condition that is open there, or named in a rule. For a condition: each kind of
    nodes. What is set for the condition in a group of the node comes first, then what [core] says
    of the condition, then the mode of the group, then that of the fleet; of several groups the most
    careful holds. Outside of its group's wave a node is only advised on.

    --what-if enforce goes through what was found, in the order of time: how many nodes would have
    been isolated, for how many a budget had no room, and how many were well again soon by
    themselves, which may have been nothing.

    \b
    Examples:
      everstep policy
      everstep policy gpu-0042
      everstep policy XidFatal --what-if enforce --last 30d
    """
    asked_ns = last_ns if what_if else 0
    request = admin_pb2.GetPolicyRequest(subject=subject, what_if_ns=asked_ns)
    reply = ask.admin.call(lambda stub: stub.GetPolicy, request, subject)
    ask.answer(reply, *_views(reply, asked_ns, ask.now_ns))


def _views(reply: admin_pb2.PolicyReply, asked_ns: int, now_ns: int) -> Iterator[RenderableType]:
    yield tables.facts([("mode of the fleet", reply.mode), ("budgets", reply.budgets)])
    if reply.groups:
        yield tables.section("groups")
        yield _groups(reply.groups)
    for line in reply.lines:
        yield ""
        count = f" ({formatting.count(line.nodes, 'node')})" if reply.kind == "condition" else ""
        yield Text.assemble(f"{line.subject}{count}: ", (line.mode, _COLOURS[line.mode]))
        yield from map(_rule, line.rules)
    if reply.kind == "node" and not reply.lines:
        yield "Nothing is open there, and no rule names a condition: the mode holds for all."
    if asked_ns:
        yield tables.section(f"if it had been enforced for {formatting.duration(asked_ns)}")
        yield from _what_if(reply, now_ns)


def _rule(rule: admin_pb2.PolicyRule) -> Text:
    mark, style = ("*", "bold") if rule.decides else (" ", "dim")
    return Text(f"  {mark} {rule.place}: {rule.says}", style=style)


def _groups(groups: Sequence[admin_pb2.GroupLine]) -> RenderableType:
    made = tables.table("group", "nodes", "says", right=("nodes",), wrap=("says",))
    for one in groups:
        made.add_row(one.group, str(one.nodes), "; ".join(one.says) or "nothing")
    return made


def _what_if(reply: admin_pb2.PolicyReply, now_ns: int) -> Iterator[RenderableType]:
    if reply.known_since_ns:
        age = formatting.duration(now_ns - reply.known_since_ns)
        yield Text(f"Records go back {age} only.", style="yellow")
    if not reply.what_if:
        yield "Nothing was found for which automation isolates nodes."
    for line in reply.what_if:
        yield Text(_sentence(line))


def _sentence(line: admin_pb2.WhatIfLine) -> str:
    """Return what enforcing a condition would have done, in a sentence or two."""
    what = line.condition or "all of them together"
    found = f"{what}: found on {formatting.count(line.found, 'node')}"
    told = f"{found}; {formatting.count(len(line.isolated), 'node')} isolated"
    told += f" ({_named(line.isolated)})" if line.isolated else ""
    if line.held_back:
        told += f", {len(line.held_back)} held back by {line.why} ({_named(line.held_back)})"
    if line.done:
        told += f". In truth {formatting.count(line.done, 'node')} {_were(line.done)} isolated"
    if line.isolated:
        within = formatting.duration(line.within_ns)
        told += f". {line.by_itself} of the isolated {_were(line.by_itself)} well again within"
        told += f" {within}"
    return told + "."


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - _NAMED_MAX} more" if len(nodes) > _NAMED_MAX else ""
    return f"{formatting.names(nodes[:_NAMED_MAX])}{more}"


COMMANDS = (policy,)
