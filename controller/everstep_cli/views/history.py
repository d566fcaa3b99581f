"""View of the history: a line of each row."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from rich.text import Text

from everstep_cli.views import formatting
from everstep_proto.generated import admin_pb2

Told = Mapping[str, Any]


def history_line(row: admin_pb2.HistoryRow) -> Text:
    """Return when it began, whose it is, and what it tells."""
    told: Told = json.loads(row.told)
    began = datetime.fromtimestamp(row.begin_ns / 1e9, UTC)
    head = Text.assemble((f"{began:%Y-%m-%d %H:%M} ", "dim"), (f"{row.key} ", "bold"))
    return head.append("; ".join(_LINES[row.kind](told)))


def _incident(told: Told) -> Iterator[str]:
    at = " ".join(filter(None, (told.get("node", ""), told.get("device", ""))))
    cost = formatting.duration(sum(told.get("costs", {}).values()))
    yield f"{told['cause']}{f' on {at}' if at else ''}, cost {cost}: {told['message']}"
    if not told.get("over_ns"):
        yield "it is open"


def _hour(told: Told) -> Iterator[str]:
    yield "since its start " + _times(told["totals"])
    yield f"{told.get('nodes', 1)} nodes"


def _node(told: Told) -> Iterator[str]:
    yield _times(told["spent_ns"])
    if isolated_ns := told.get("isolated_ns", 0):
        yield f"isolated {formatting.duration(isolated_ns)}"
    if found := told.get("findings"):
        yield ", ".join(f"{name} {count} times" for name, count in sorted(found.items()))
    if count := told.get("incidents", 0):
        cost = formatting.duration(told.get("lost_ns", 0))
        yield f"{count} incident{'s' * (count > 1)}, cost {cost}"


def _fleet(told: Told) -> Iterator[str]:
    yield f"{told['nodes']} nodes"
    yield _times(told["spent_ns"])


def _times(spent: Mapping[str, int]) -> str:
    most = sorted(spent.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {formatting.duration(ns)}" for name, ns in most)


_LINES: Mapping[str, Callable[[Told], Iterator[str]]] = MappingProxyType(
    {"incident": _incident, "job-hour": _hour, "node-day": _node, "fleet-day": _fleet}
)
