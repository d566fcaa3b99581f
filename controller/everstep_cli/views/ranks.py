"""View of a job's ranks: the node, the process and the devices of each."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import tables
from everstep_common.hangs.node_reports import ToldByNodes
from everstep_common.hangs.reports.rank_report import ProcessState, RankHangReport
from everstep_common.printable import printable


@dataclass(frozen=True, slots=True)
class RankLine:
    """A rank as its node sees it now."""

    rank: int
    node: str
    # As the launcher there counts processes; 0: not known.
    pid: int
    state: str
    # PCI addresses of what it has open; None: that was not read.
    devices: tuple[str, ...] | None


def rank_lines(seen: ToldByNodes) -> list[RankLine]:
    """Return all ranks of which a node told, in their order."""
    return sorted(map(_line, seen.reports), key=lambda one: one.rank)


def rank_sheet(seen: ToldByNodes) -> Iterator[RenderableType]:
    """Yield the ranks, and of which nothing is known and why."""
    made = tables.table(
        "rank", "node", "pid", "process", "devices", right=("rank", "pid"), wrap=("devices",)
    )
    for one in rank_lines(seen):
        devices = ", ".join(map(printable, one.devices or ())) or "none"
        made.add_row(
            str(one.rank),
            printable(one.node),
            str(one.pid or "-"),
            one.state,
            "not read" if one.devices is None else devices,
        )
    yield made
    yield from (Text(f"not seen: {one}", style="yellow") for one in dict.fromkeys(seen.missing))


def _line(report: RankHangReport) -> RankLine:
    process = report.process
    state = "-" if process.state is ProcessState.UNKNOWN else process.state.value
    return RankLine(report.rank, report.node, report.pid, state, process.devices)
