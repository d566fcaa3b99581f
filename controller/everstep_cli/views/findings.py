"""View of findings, events and explanations."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everstep_cli.views import tables, words
from everstep_cli.views.deaths import death_lists
from everstep_cli.views.stacks import hang_sheet
from everstep_proto.generated import admin_pb2


def finding_table(
    findings: Iterable[admin_pb2.FindingLine], now_ns: int, *, with_node: bool = True
) -> Table:
    """Return findings, one a row, with what was seen and what to do below the sentence."""
    first = ("node",) if with_node else ()
    made = tables.table(*first, "severity", "condition", "since", "finding", wrap=("finding",))
    for finding in findings:
        made.add_row(
            *([finding.node] if with_node else []),
            words.state(finding.severity),
            f"{finding.condition}\n{finding.component}",
            words.duration(now_ns - finding.since_ns),
            _story(finding),
        )
    return made


def finding_list(
    findings: Iterable[admin_pb2.FindingLine], now_ns: int
) -> Iterator[RenderableType]:
    """Yield the open findings, or say that there is none."""
    rows = list(findings)
    if rows:
        yield finding_table(rows, now_ns)
    else:
        yield "No open findings."


def event_line(event: admin_pb2.Event) -> Text:
    """Return an event as a line: when, about what, which kind, and the sentence."""
    return Text.assemble(
        (words.clock(event.at_ns), "dim"),
        "  ",
        (f"{event.subject:<12}", "bold"),
        " ",
        (f"{event.reason:<18}", "cyan"),
        "  ",
        event.message,
    )


def explanation(reply: admin_pb2.WhyReply, name: str) -> Iterator[RenderableType]:
    """Yield the answer first, then the decisions that led there."""
    yield Text.assemble((name, "bold"), f" ({reply.kind}) is ", words.state(reply.state))
    yield Text(reply.answer)
    if reply.HasField("hang"):
        yield from hang_sheet(reply.hang)
    if reply.HasField("incident"):
        yield from death_lists([reply.incident])
    if reply.decisions:
        yield tables.section("how it came to that")
        yield _history(reply.decisions)


def _history(events: Iterable[admin_pb2.Event]) -> Table:
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for event in events:
        made.add_row(words.clock(event.at_ns), event.reason, event.message)
    return made


def _story(finding: admin_pb2.FindingLine) -> Text:
    story = Text(finding.message)
    if finding.evidence:
        story.append(f"\nseen: {finding.evidence}", "dim")
    if finding.suggested_action not in ("", "none"):
        story.append(f"\ndo: {finding.suggested_action.replace('_', ' ')}", "yellow")
    if finding.rule:
        story.append(f"\nrule: {finding.rule}", "dim")
    if finding.owner == "controller" and finding.node != "controller":
        story.append("\nfound by the controller, which compared the nodes", "dim")
    if finding.owner == "core":
        story.append("\nfound by the controller, by what has happened", "dim")
    if finding.mode == "observe":
        story.append("\nobserved only: automation does nothing about it", "dim")
    if finding.injected:
        story.append("\ninjected on purpose", "magenta")
    return story
