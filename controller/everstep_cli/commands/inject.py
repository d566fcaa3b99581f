"""`everstep inject`: makes a fault on purpose, for drills and for tests of the whole path."""

import re
from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.client.admin import AdminError
from everstep_cli.commands.completion import node_names
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import tables, words
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
@click.argument("node", metavar="NODE", shell_complete=node_names)
@click.argument("spec", metavar="[SPEC]", default="")
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    callback=_seconds,
    default="60s",
    show_default=True,
    help="When it ends by itself; at most 1h.",
)
@click.option("--reason", default="", help="Kept in the audit log.")
@click.option("--list", "listed", is_flag=True, help="Show what is and lately was injected.")
@click.option(
    "--clear",
    metavar="[ID]",
    is_flag=False,
    flag_value="all",
    help="End one injection, or all of the node.",
)
@asks_controller
def inject(
    ask: Ask,
    node: str,
    spec: str,
    seconds: float,
    reason: str,
    listed: bool,
    clear: str | None,
) -> None:
    r"""Make a fault on NODE on purpose, through the path that a real one takes.

    For drills and tests. The agent of NODE must allow it (fault_injection = true in its
    configuration), and everything that follows is shown as injected. It ends by itself.

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
      slow:20%                              training processes that stand still a fifth of the time

    \b
    Examples:
      everstep inject gpu-0042 xid:79 --for 2m --reason "drill of Tuesday"
      everstep inject gpu-0042 --list
      everstep inject gpu-0042 --clear
    """
    if sum((bool(spec), listed, clear is not None)) != 1:
        raise click.UsageError("give a SPEC, --list or --clear, and only one of them")
    if listed:
        reply = ask.admin.injections(node)
        ask.answer(reply, *_listing(reply, ask.now_ns))
    elif clear is not None:
        reply = ask.admin.clear_injections(node, "" if clear == "all" else clear)
        ask.answer(reply, *_listing(reply, ask.now_ns))
    else:
        _tell(ask, node, ask.admin.inject(node, spec, seconds, reason))


def _tell(ask: Ask, node: str, line: admin_pb2.InjectionLine) -> None:
    if line.state == "refused":
        raise AdminError(f"{node} refused: {line.message}")
    if line.state == "ordered":
        raise AdminError(
            f"{node} has not answered yet; 'everstep inject {node} --list' shows when it does"
        )
    until = f"; it ends by itself, or by: everstep inject {node} --clear {line.injection}"
    ask.answer(line, Text.assemble((node, "bold"), f": {line.message}{until}"))


def _listing(reply: admin_pb2.InjectionsReply, now_ns: int) -> Iterator[RenderableType]:
    """Yield what is and lately was injected, or say that there is nothing."""
    if not reply.injections:
        yield "Nothing is injected, and nothing was lately."
        return
    made = tables.table(
        "injection", "state", "ordered", "by", "what came of it", wrap=("what came of it",)
    )
    for line in reply.injections:
        made.add_row(
            line.injection,
            words.state(line.state),
            f"{words.duration(now_ns - line.ordered_ns)} ago",
            line.operator,
            _story(line),
        )
    yield made


def _story(line: admin_pb2.InjectionLine) -> Text:
    story = Text(f"{line.spec} for {words.duration(line.duration_ns)}")
    if line.message:
        story.append(f"\n{line.message}", "dim")
    if line.reason:
        story.append(f"\nbecause: {line.reason}", "dim")
    return story


COMMANDS = (inject,)
