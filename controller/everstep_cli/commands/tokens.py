"""`everstep tokens`: tokens by which nodes enrol, and `everstep nodes` about their certificates."""

import click

from everstep_cli.client.times import TimeError, parse_duration_ns
from everstep_cli.commands.next_command import Commands
from everstep_cli.commands.nodes import nodes
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.enrolment import certificate_list, revoked_sheet, token_list, token_sheet
from everstep_common.node_lists import NodeListError, expand
from everstep_proto.generated import admin_pb2

_HEX = frozenset("0123456789abcdefABCDEF:")
# Serial numbers that are made here have about 40 digits, those of others 8 at least.
_SERIAL_DIGITS_MIN = 8


def _duration(_: click.Context, __: click.Parameter, text: str) -> int:
    try:
        return parse_duration_ns(text)
    except TimeError as error:
        raise click.BadParameter(str(error)) from error


@click.group(cls=Commands, invoke_without_command=True)
@asks_controller
def tokens(ask: Ask, /) -> None:
    r"""List the tokens by which nodes enrol: for whom each is, until when, and who has used it.

    A token lets a node get a certificate: 'everstep-agent join TOKEN CONTROLLER' on the node.
    Its secret is printed once, when it is made (docs/enrolment.md).

    \b
    Examples:
      everstep tokens
      everstep tokens make --node gpu-0042
      everstep tokens make --node 'gpu-[0001-0512]' --for 4h --reason "hall 2"
      everstep tokens revoke k3j5q2ab
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    request = admin_pb2.ListTokensRequest()
    reply = ask.admin.call(lambda stub: stub.ListTokens, request)
    ask.answer(reply, *token_list(reply.tokens, ask.now_ns))


@tokens.command()
@click.option(
    "--node",
    "names",
    metavar="NODES",
    required=True,
    help="Who may enrol by it: gpu-0042, 'gpu-[0001-0512]', or a pattern such as 'gpu-*'.",
)
@click.option(
    "--for",
    "lasts_ns",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=_duration,
    help="How long it counts.",
)
@click.option("--once", is_flag=True, help="For one node only, the first of these that comes.")
@click.option("--reason", default="", help="Kept in the audit log.")
@asks_controller
def make(ask: Ask, names: str, lasts_ns: int, once: bool, reason: str) -> None:
    r"""Make a token, and print the line to type on the node.

    Each node enrols by it once. A token for one name may replace what was enrolled under it, as
    after a node was installed anew; one for many names may not.

    \b
    Examples:
      everstep tokens make --node gpu-0042
      everstep tokens make --node 'gpu-[0001-0512]' --for 4h
      everstep tokens make --node 'gpu-*' --for 1d --json | jq -r .token
    """
    single = _expanded(names)
    uses_max = 1 if once or len(single) == 1 else 0
    request = admin_pb2.MakeTokenRequest(
        nodes=single, names=names, uses_max=uses_max, lasts_ns=lasts_ns, reason=reason
    )
    reply = ask.admin.call(lambda stub: stub.MakeToken, request)
    ask.answer(reply, *token_sheet(reply, ask.now_ns))


@tokens.command()
@click.argument("token", metavar="ID")
@asks_controller
def revoke(ask: Ask, token: str) -> None:
    r"""Revoke a token; nodes that have enrolled by it stay.

    \b
    Example:
      everstep tokens revoke k3j5q2ab
    """
    request = admin_pb2.RevokeTokenRequest(id=_id_of(token))
    reply = ask.admin.call(lambda stub: stub.RevokeToken, request)
    ask.answer(reply, *token_list([reply], ask.now_ns))


@nodes.command("certificates")
@asks_controller
def certificates(ask: Ask) -> None:
    r"""List the certificates that were signed for nodes, and what was revoked.

    \b
    Examples:
      everstep nodes certificates
      everstep nodes certificates --json | jq -r '.certificates[] | .node + " " + .serial'
    """
    request = admin_pb2.ListCertificatesRequest()
    reply = ask.admin.call(lambda stub: stub.ListCertificates, request)
    ask.answer(reply, *certificate_list(reply, ask.now_ns))


@nodes.command("revoke")
@click.argument("what", metavar="NODE|SERIAL")
@click.option("--serial", is_flag=True, help="It is a serial number, whatever it looks like.")
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def revoke_certificates(ask: Ask, what: str, serial: bool, reason: str) -> None:
    r"""Have the certificates of NODE count no more, or the one of a serial number.

    Its streams end at once, and all agents are told: they take it no more for copies and metrics.
    What the node runs is not stopped: isolate it for that. A token of its own brings it back.

    \b
    Examples:
      everstep nodes revoke gpu-0042 --reason "its disk was stolen"
      everstep nodes revoke 2f:19:7c:00:41:8a:03:55 --reason "found in a backup"
    """
    by_serial = serial or _looks_like_serial(what)
    request = admin_pb2.RevokeCertificatesRequest(
        node="" if by_serial else what, serial=what if by_serial else "", reason=reason
    )
    reply = ask.admin.call(lambda stub: stub.RevokeCertificates, request)
    ask.answer(reply, *revoked_sheet(reply))


def _expanded(names: str) -> list[str]:
    if "*" in names:
        return []
    try:
        return expand(names)
    except NodeListError as error:
        raise click.BadParameter(str(error), param_hint="--node") from error


def _id_of(token: str) -> str:
    """Return the id of a token; people may give all of it."""
    parts = token.split("-")
    return parts[1] if token.startswith("everstep-") and len(parts) == 4 else token


def _looks_like_serial(what: str) -> bool:
    """Return whether a word is a serial number and no name of a node: names have other letters."""
    return len(what) >= _SERIAL_DIGITS_MIN and _HEX.issuperset(what) and any(map(str.isdigit, what))


COMMANDS = (tokens,)
