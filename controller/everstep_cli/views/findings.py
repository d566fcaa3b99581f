"""View of findings, events and explanations."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_cli.views.causes import by_cause, components_of, nodes_of, runs_of_events
from everstep_cli.views.deaths import death_lists
from everstep_cli.views.stacks import hang_sheet
from everstep_proto.generated import admin_pb2


def finding_table(
    groups: Iterable[Sequence[admin_pb2.FindingLine]],
    now_ns: int,
    *,
    with_node: bool = True,
    each: str = "",
) -> Table:
    """Return findings, those of one cause a row, with what was seen and what to do about it.

    ``each`` is the command that lists them one by one.
    """
    first = ("node",) if with_node else ()
    made = tables.table(*first, "severity", "condition", "since", "finding", wrap=("finding",))
    for group in groups:
        finding = group[0]
        made.add_row(
            *([nodes_of(group)] if with_node else []),
            formatting.state(finding.severity),
            f"{finding.condition}\n{components_of(group)}",
            formatting.duration(now_ns - min(one.since_ns for one in group)),
            _story(finding).append(_more_of(len(group) - 1, each), "dim"),
        )
    return made


def grouped(
    findings: Iterable[admin_pb2.FindingLine], *, every: bool
) -> list[list[admin_pb2.FindingLine]]:
    """Return findings by their causes; each alone where ``every`` is asked for."""
    return [[one] for one in findings] if every else by_cause(findings)


def finding_list(
    findings: Iterable[admin_pb2.FindingLine], now_ns: int, *, every: bool = False
) -> Iterator[RenderableType]:
    """Yield the open findings, those of one cause as one, or say that there is none."""
    groups = grouped(findings, every=every)
    if groups:
        yield finding_table(groups, now_ns, each="everstep findings --all")
    else:
        yield "No open findings."


def event_line(event: admin_pb2.Event) -> Text:
    """Return an event as a line: when, about what, which kind, and the sentence."""
    return Text.assemble(
        (formatting.clock(event.at_ns), "dim"),
        "  ",
        (f"{event.subject:<12}", "bold"),
        " ",
        (f"{event.reason:<18}", "cyan"),
        "  ",
        event.message,
    )


def explanation(reply: admin_pb2.WhyReply, name: str) -> Iterator[RenderableType]:
    """Yield the answer first, then the decisions that led there."""
    yield Text.assemble((name, "bold"), f" ({reply.kind}) is ", formatting.state(reply.state))
    yield Text(reply.answer)
    if reply.HasField("hang"):
        yield from hang_sheet(reply.hang)
    if reply.HasField("incident"):
        yield from death_lists([reply.incident])
    if reply.decisions:
        yield tables.section("how it came to that")
        yield _history(reply.decisions, name)


def _more_of(count: int, each: str) -> str:
    if not count:
        return ""
    noun = "finding" if count == 1 else "findings"
    return f"\nand {count} more {noun} of this cause; each: {each}"


def _history(events: Iterable[admin_pb2.Event], name: str) -> Table:
    made = tables.grid()
    made.add_column(style="dim", no_wrap=True)
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for run in runs_of_events(events):
        first = run[0]
        more = _more_of(len(run) - 1, f"everstep events --subject {name}")
        story = Text(first.message).append(more, "dim")
        made.add_row(formatting.clock(first.at_ns), first.reason, story)
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
