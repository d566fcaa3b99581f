"""`everstep check`: has a node do fixed work beside another one, and shows the numbers."""

import sys
from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from everstep_cli.commands.completion import node_names
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views import formatting
from everstep_cli.views.tables import table
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2

# A test ends after 10 s at the latest, whatever its agents do; the rest is for a busy controller.
_POLL_S, _POLLS = 0.5, 40
_EXIT_CODES = {"equal": 0, "slow": 1}
_NO_VERDICT = 2
# A test that was made so lately is the one that was asked for.
_JUST_NS = 60 * 10**9


@click.command()
@click.argument("node", metavar="NODE", shell_complete=node_names)
@click.option(
    "--pair",
    "partner",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[PARTNER]",
    help="Test it now, beside PARTNER or beside any node that is healthy, alike and without ranks.",
)
@asks_controller
def check(ask: Ask, node: str, partner: str | None) -> None:
    r"""Test NODE beside another node, or show what its newest such test has shown.

    Both do the same fixed work three times: on their processors, in their memory and on every
    GPU that nobody uses. No job is stopped for it: while ranks run on either node it is refused.

    \b
    It ends with 0 where there is no difference, 1 where NODE is slower, 2 where that is not known.

    \b
    Examples:
      everstep check gpu-0042 --pair
      everstep check gpu-0042 --pair gpu-0043 --json
    """
    reply = _tested(ask, node, partner) if partner is not None else _newest(ask, node)
    ask.answer(reply, *result_sheet(node, reply, ask.now_ns))
    if code := exit_code(reply):
        sys.exit(code)


def exit_code(reply: admin_pb2.PairTestReply) -> int:
    """Return 0 where there is no difference, 1 for a slower node, and 2 where nothing is known."""
    return _EXIT_CODES.get(reply.outcome, _NO_VERDICT)


def _tested(ask: Ask, node: str, partner: str) -> admin_pb2.PairTestReply:
    request = admin_pb2.TestPairRequest(node=node, partner=partner)
    reply = ask.admin.call(lambda stub: stub.TestPair, request, node)
    for _ in range(_POLLS):
        if reply.outcome != "running":
            break
        ask.session.wait(_POLL_S)
        reply = _newest(ask, node)
    return reply


def _newest(ask: Ask, node: str) -> admin_pb2.PairTestReply:
    request = admin_pb2.GetPairTestRequest(node=node)
    return ask.admin.call(lambda stub: stub.GetPairTest, request, node)


def result_sheet(
    node: str, reply: admin_pb2.PairTestReply, now_ns: int
) -> Iterator[RenderableType]:
    """Yield what a test has shown, with its numbers."""
    on_purpose = " [injected]" if reply.injected else ""
    age_ns = max(0, now_ns - reply.done_ns)
    when = f" ({formatting.duration(age_ns)} ago)" if reply.done_ns and age_ns > _JUST_NS else ""
    # A node's name is typed again: it keeps its letters, also where a sentence begins.
    yield Text(f"{printable(reply.sentence)}{on_purpose}{when}")
    if not reply.rows:
        return
    numbers = table("work", f"ms on {node}", "partner", "ms there", "times", "")
    for row in reply.rows:
        factor = row.node_ns / row.partner_ns if row.partner_ns else 0.0
        numbers.add_row(
            printable(row.work),
            f"{row.node_ns / 1e6:.2f}",
            printable(row.partner),
            f"{row.partner_ns / 1e6:.2f}",
            f"{factor:.2f}",
            "slow" if row.slow else "",
        )
    yield numbers


COMMANDS = (check,)
