"""`everstep inject`: makes a fault on purpose, for drills and for tests of the whole path."""

import re
from collections.abc import Iterator
from functools import partial

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.client.admin import NameNotFoundError, RefusedError
from everstep_cli.commands.completion import node_names
from everstep_cli.commands.node_lists import names_in_all
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.commands.several_nodes import each_node
from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_SECONDS_MAX = 3600.0


def _seconds(_ctx: click.Context, _option: click.Parameter, text: str) -> float:
    """Return a time like "90", "60s", "5m" or "1h" in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not seconds:
        raise click.BadParameter(f"{text!r} is no length of time; say 60s, 5m or 1h")
    if seconds > _SECONDS_MAX:
        raise click.BadParameter(f"{text!r} is too long: an injection ends after 1h at the latest")
    return seconds


@click.command()
@click.argument(
    "given", metavar="NODES... [SPEC]", nargs=-1, required=True, shell_complete=node_names
)
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    callback=_seconds,
    default="60s",
    show_default=True,
    help="How long it lasts; at most 1h.",
)
@click.option("--reason", default="", help="Kept in the audit log.")
@click.option("--list", "listed", is_flag=True, help="List current and recent injections.")
@click.option(
    "--clear",
    metavar="[ID]",
    is_flag=False,
    flag_value="all",
    help="End one injection, or all on NODES.",
)
@asks_controller
def inject(
    ask: Ask,
    given: tuple[str, ...],
    seconds: float,
    reason: str,
    listed: bool,
    clear: str | None,
) -> None:
    r"""Inject a fault on NODES, where a real one would appear.

    For drills and tests. The agent there must allow it (fault_injection = true in its
    configuration). Everything that it causes is marked as injected. It ends by itself.

    \b
    SPEC is one of:
      xid:79[@PCI]                          a line of the NVIDIA driver in the kernel log
      kernel:TEXT                           any line in the kernel log
      ecc:corrected=1000/s[@PCI]            correctable memory errors, as a rate
      ecc:uncorrected=1[@PCI]               uncorrectable memory errors
      temperature:95[@PCI]                  a temperature in degrees Celsius
      throttle:power_brake[@PCI]            clocks held down; also thermal (found after a minute),
                                            hw_slowdown (after six minutes: give --for 10m)
      lost[@PCI]                            a GPU that does not answer
      link-down:mlx5_0/1                    a port or interface that is down
      link-errors:mlx5_0/1=symbol_error:200 errors on a port, each second
      hang:nvml                             a driver that does not answer; found after 65 s, so
                                            give --for 3m
      slow:20%                              training processes that are stopped a fifth of the time
      slow-work:20%                         a pair test whose work is a fifth more on this node

    \b
    Examples:
      everstep inject gpu-0042 xid:79 --for 2m --reason "drill of Tuesday"
      everstep inject gpu-0042 gpu-0043 lost
      everstep inject gpu-0042 --list
      everstep inject gpu-0042 --clear
    """
    names, spec = _nodes_and_spec(given, listed=listed, cleared=clear is not None)
    if len(names) > 1 and clear not in (None, "all"):
        raise click.UsageError(f"{clear} is on one node: name that one, or leave the id out")
    listing = partial(_listing, now_ns=ask.now_ns)
    if listed:
        each_node(ask, names, partial(_injections, ask), listing)
    elif clear is not None:
        one = "" if clear == "all" else clear
        each_node(ask, names, partial(_cleared, ask, one), listing)
    else:
        request = admin_pb2.InjectRequest(spec=spec, duration_ns=int(seconds * 1e9), reason=reason)
        each_node(ask, names, partial(_injected, ask, request), _outcome)


def _nodes_and_spec(
    given: tuple[str, ...], *, listed: bool, cleared: bool
) -> tuple[list[str], str]:
    """Return the nodes among the arguments, and the SPEC behind them where one is needed."""
    spec = "" if listed or cleared else given[-1]
    nodes = given[:-1] if spec else given
    # What has such a character behind a name is no second one.
    too_much = any(":" in word or "@" in word for word in nodes[1:])
    if (listed and cleared) or not nodes or too_much:
        raise click.UsageError("give a SPEC, --list or --clear, and only one of them")
    return names_in_all(nodes), spec


def _injections(ask: Ask, node: str) -> admin_pb2.InjectionsReply:
    request = admin_pb2.ListInjectionsRequest(node=node)
    return ask.admin.call(lambda stub: stub.ListInjections, request, node)


def _cleared(ask: Ask, injection: str, node: str) -> admin_pb2.InjectionsReply:
    request = admin_pb2.ClearInjectionsRequest(node=node, injection=injection)
    try:
        return ask.admin.call(lambda stub: stub.ClearInjections, request, node)
    except NameNotFoundError as error:
        known = _injections(ask, node).injections  # says it of a node that is not known
        ids = ", ".join(one.injection for one in known) or "none"
        raise NameNotFoundError(f"no injection {injection!r} on {node}; it has: {ids}") from error


def _injected(ask: Ask, request: admin_pb2.InjectRequest, node: str) -> admin_pb2.InjectionLine:
    request.node = node
    line = ask.admin.call(lambda stub: stub.Inject, request, node)
    if line.state == "refused":
        raise RefusedError(f"{node} refused: {line.message}")
    if line.state == "ordered":
        raise RefusedError(
            f"{node} has not answered yet; 'everstep inject {node} --list' shows when it does"
        )
    return line


def _outcome(node: str, line: admin_pb2.InjectionLine) -> list[Text]:
    until = f"; it ends by itself, or by: everstep inject {node} --clear {line.injection}"
    return [Text.assemble((node, "bold"), f": {line.message}{until}")]


def _listing(node: str, reply: admin_pb2.InjectionsReply, now_ns: int) -> Iterator[RenderableType]:
    """Yield what is and lately was injected into a node, or say that there is nothing."""
    if not reply.injections:
        yield f"Nothing is injected into {node}, and nothing was lately."
        return
    made = tables.table(
        "injection", "state", "ordered", "by", "what came of it", wrap=("what came of it",)
    )
    for line in reply.injections:
        made.add_row(
            line.injection,
            formatting.state(line.state),
            f"{formatting.duration(now_ns - line.ordered_ns)} ago",
            line.operator,
            _story(line),
        )
    yield made


def _story(line: admin_pb2.InjectionLine) -> Text:
    story = Text(f"{line.spec} for {formatting.duration(line.duration_ns)}")
    if line.message:
        story.append(f"\n{line.message}", "dim")
    if line.reason:
        story.append(f"\nbecause: {line.reason}", "dim")
    return story


COMMANDS = (inject,)
