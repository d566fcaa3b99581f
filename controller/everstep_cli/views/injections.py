"""View of injections: the faults that were made on purpose on a node."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import tables, words
from everstep_proto.generated import admin_pb2


def listing(reply: admin_pb2.InjectionsReply, now_ns: int) -> Iterator[RenderableType]:
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
