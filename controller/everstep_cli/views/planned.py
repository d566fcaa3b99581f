"""View of planned work on a job: what is to come, what it waits for, and who wanted it."""

from collections.abc import Iterator

from everstep_cli.views import words
from everstep_proto.generated import admin_pb2

_KINDS = {
    "restart": "a restart",
    "drain": "a move to other nodes",
    "growth": "a restart on more nodes",
}


def planned_facts(line: admin_pb2.PlannedLine, now_ns: int) -> Iterator[tuple[str, str]]:
    """Yield what is planned and why, what it waits for, and how to take it back."""
    after = f" after step {line.after_step}" if line.HasField("after_step") else ""
    since = words.duration(now_ns - line.ordered_ns)
    what = _KINDS.get(line.kind, line.kind)
    yield "planned", f"{what}{after}, ordered by {line.by} {since} ago: {line.reason}"
    yield "waits", line.waits
    yield "to undo", line.undo
