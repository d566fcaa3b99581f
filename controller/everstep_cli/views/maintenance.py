"""View of maintenance windows."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
_OPEN = ("planned", "draining", "begun")


def window_list(
    windows: Iterable[admin_pb2.MaintenanceWindow], now_ns: int
) -> Iterator[RenderableType]:
    """Yield the table of windows, and a sentence for each job that one interrupts."""
    rows = list(windows)
    if not rows:
        yield "No maintenance is planned. Plan some: everstep maintenance add --help"
        return
    made = tables.table(
        "window", "state", "from (UTC)", "to (UTC)", "nodes", "by", "reason",
        wrap=("nodes", "reason"),
    )  # fmt: skip
    for window in rows:
        made.add_row(
            window.window,
            formatting.state(window.state),
            _clock(window.begin_ns),
            _clock(window.end_ns),
            formatting.names(window.nodes),
            window.by,
            window.reason or "-",
        )
    yield made
    for window in rows:
        yield from _sentences(window, now_ns)


def window_sheet(window: admin_pb2.MaintenanceWindow, now_ns: int) -> Iterator[RenderableType]:
    """Yield what was planned, or given up, and what follows."""
    span = f"{_clock(window.begin_ns)} to {_clock(window.end_ns)} UTC"
    yield Text.assemble(
        (window.window, "bold"), f": {window.state}, {formatting.names(window.nodes)}, {span}"
    )
    if window.ended_by:
        yield f"cancelled by {window.ended_by}"
    yield from _sentences(window, now_ns)


def _sentences(window: admin_pb2.MaintenanceWindow, now_ns: int) -> Iterator[Text]:
    if window.state not in _OPEN:
        return
    if window.state == "planned":
        drained = formatting.duration(window.drain_ns - now_ns)
        yield Text(f"{window.window}: jobs begin to leave in {drained}")
    for job in window.moves:
        yield Text(f"{window.window}: {job} goes on elsewhere, from a step boundary")
    for sentence in window.interrupts:
        yield Text(sentence, style="yellow")


def _clock(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // _NS, UTC):%Y-%m-%d %H:%M}"
