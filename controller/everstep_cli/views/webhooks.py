"""View of webhooks: how each fares, and what came of a test."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2


def webhook_list(lines: Iterable[admin_pb2.WebhookLine], now_ns: int) -> Iterator[RenderableType]:
    """Yield the table of webhooks, and a sentence for each that fails."""
    rows = list(lines)
    if not rows:
        yield "No webhook is configured: docs/webhooks.md says how."
        return
    made = tables.table(
        "webhook", "host", "cursor", "behind", "sent", "failed", "given up", "in digests",
        "newest answer", wrap=("newest answer",),
    )  # fmt: skip
    for one in rows:
        made.add_row(
            one.name,
            one.host or "-",
            str(one.cursor),
            str(one.lag),
            str(one.sent),
            str(one.failed),
            str(one.given_up),
            str(one.digested),
            _answer(one, now_ns),
        )
    yield made
    for one in rows:
        if one.trouble:
            yield Text(f"{one.name} fails: {printable(one.trouble)}")
            yield Text(f"correct it, then: everstep webhooks test {one.name}")


def tested(name: str, reply: admin_pb2.TestWebhookReply) -> Iterator[RenderableType]:
    """Yield what came of a test."""
    word = "accepts" if reply.accepted else "does not accept"
    host = f" ({reply.host})" if reply.host else ""
    yield Text(f"the receiver of {name}{host} {word} events: {printable(reply.answer)}")


def _answer(one: admin_pb2.WebhookLine, now_ns: int) -> str:
    if not one.answer_ns:
        return "none yet"
    return f"{formatting.duration(now_ns - one.answer_ns)} ago: {printable(one.answer)}"
