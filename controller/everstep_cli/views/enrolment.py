"""View of enrolment: tokens, certificates, and what was revoked."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
_SHOWN_MAX = 5


def token_list(lines: Iterable[admin_pb2.TokenLine], now_ns: int) -> Iterator[RenderableType]:
    """Yield the table of tokens."""
    rows = list(lines)
    if not rows:
        yield "There is no token. Make one: everstep tokens make --node gpu-0042"
        return
    made = tables.table(
        "token",
        "state",
        "for",
        "until (UTC)",
        "used by",
        "by",
        "reason",
        wrap=("used by", "reason"),
    )
    for one in rows:
        made.add_row(
            one.id,
            formatting.state(one.state),
            one.names,
            f"{_clock(one.until_ns // _NS)} {_left(one.until_ns - now_ns)}".rstrip(),
            _used(one),
            one.operator,
            one.reason or "-",
        )
    yield made


def token_sheet(reply: admin_pb2.MakeTokenReply, now_ns: int) -> Iterator[RenderableType]:
    """Yield a new token, and where it is typed."""
    line = reply.line
    once = "one node" if line.uses_max == 1 else "each node once"
    lasts = formatting.duration(line.until_ns - now_ns + _NS // 2)
    yield Text(f"token {line.id} for {line.names}, {once}, {lasts}; as root on the node:")
    yield Text(f"  everstep-agent join {reply.token} {reply.address}", no_wrap=True)
    yield Text(
        "It is shown this once. Who has it can be that node: everstep tokens revoke " + line.id
    )


def certificate_list(
    reply: admin_pb2.ListCertificatesReply, now_ns: int
) -> Iterator[RenderableType]:
    """Yield the table of certificates, and that of revocations."""
    if not reply.certificates:
        yield "No certificate was signed here: everstep tokens make --node gpu-0042"
    else:
        # A serial number is typed again, to revoke one: it is never cut.
        made = tables.table(
            "node", "serial", "until (UTC)", "signed (UTC)", "token", wrap=("serial",)
        )
        for one in reply.certificates:
            left = _left(one.ends_s * _NS - now_ns) or "(ended)"
            signed = _clock(one.signed_ns // _NS)
            made.add_row(
                one.node, one.serial, f"{_clock(one.ends_s)} {left}", signed, one.token or "-"
            )
        yield made
    if reply.revocations:
        yield ""
        revoked = tables.table("revoked", "since (UTC)", "by", "reason", wrap=("reason",))
        for line in reply.revocations:
            revoked.add_row(
                line.node or line.serial, _clock(line.at_s), line.operator, line.reason or "-"
            )
        yield revoked


def revoked_sheet(reply: admin_pb2.RevokeCertificatesReply) -> Iterator[RenderableType]:
    """Yield what counts no more, and how it comes back."""
    line = reply.revocation
    what = f"all certificates of {line.node}" if line.node else f"certificate {line.serial}"
    streams = formatting.count(reply.streams_ended, "stream")
    yield Text(f"{what} counted until {_clock(line.at_s)} UTC, and no more; {streams} ended")
    if line.node:
        yield Text(f"to let the node come back: everstep tokens make --node {line.node}")


def _used(one: admin_pb2.TokenLine) -> str:
    if len(one.used_by) <= _SHOWN_MAX:
        return formatting.names(list(one.used_by))
    return f"{len(one.used_by)} nodes"


def _left(ns: int) -> str:
    return f"({formatting.duration(ns)})" if ns > 0 else ""


def _clock(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"
