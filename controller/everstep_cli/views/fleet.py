"""View of a fleet: all nodes in numbers, and a line for each that is asked for."""

from collections.abc import Iterable, Iterator, Sequence

from rich.style import Style
from rich.text import Text

from everstep_cli.views import formatting
from everstep_proto.generated import admin_pb2

# Number of findings in the summary; 'everstep findings' has all.
_CONDITIONS_TOLD = 8
_GAP = "  "
# Where the state does not say already why the node takes no ranks.
_WITHHELD = ("joining", "validating", "healthy", "suspect", "probation")


def fleet_summary(summary: admin_pb2.FleetSummary) -> Iterator[str]:
    """Yield how many nodes there are, in which states, and what is found on them."""
    if not summary.fleet_nodes:
        yield "No node has connected yet. Start an agent on one: everstep-agent"
        return
    of = "" if summary.nodes == summary.fleet_nodes else f" of {summary.fleet_nodes}"
    states = ", ".join(f"{one.nodes} {one.name}" for one in summary.states)
    noun = "node" if summary.fleet_nodes == 1 else "nodes"
    yield f"{summary.nodes}{of} {noun}{': ' if states else ''}{states}"
    notes = [f"{one.nodes} claimed by {one.name}" for one in summary.claims]
    notes += [f"{summary.doubtful} doubtful"] if summary.doubtful else []
    notes += [f"{summary.away} away"] if summary.away else []
    if notes:
        yield ", ".join(notes)
    if summary.findings:
        told = [f"{one.name} on {one.nodes}" for one in summary.findings[:_CONDITIONS_TOLD]]
        more = len(summary.findings) - len(told)
        yield f"open findings: {', '.join(told)}" + (f", and {more} more kinds" if more else "")


def node_lines(
    nodes: Sequence[admin_pb2.NodeSummary], now_ns: int, *, hardware: bool, colours: bool
) -> list[str]:
    """Return a head and a line for each node, whose last column says all there is to say of it."""
    head = ["node", "state", "for", "claims", "findings", "jobs"]
    head += ["domain", "groups", "cpus", "memory", "accelerators"] if hardware else []
    rows = [_cells(node, now_ns, hardware=hardware) for node in nodes]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_GAP.join([*map(str.ljust, head, widths), "why"])]
    for node, row in zip(nodes, rows, strict=True):
        cells = list(map(str.ljust, row, widths))
        if colours:
            cells[1] = _coloured(node, cells[1])
        lines.append(_GAP.join([*cells, "; ".join(sentences(node, now_ns))]).rstrip())
    return lines


def refusals(refused: Iterable[admin_pb2.RefusedAgent], now_ns: int) -> Iterator[str]:
    """Yield a line for each agent that is not let in."""
    for agent in refused:
        age = formatting.duration(now_ns - agent.since_ns)
        yield f"{agent.node}, an agent refused for {age}: {agent.reason}"


def sentences(node: admin_pb2.NodeSummary, now_ns: int) -> Iterator[str]:
    """Yield what there is to say of a node that is not simply healthy."""
    if node.state != "healthy" and node.reason:
        yield node.reason
    if node.doubt:
        yield f"doubtful for {formatting.duration(now_ns - node.doubted_ns)}: {node.doubt}"
    for claim in node.claims:
        # Of maintenance, the window's own sentence says it all.
        if claim.reason != node.reason and claim.owner != "maintenance":
            yield f"{_how(node, claim)} by {claim.owner}: {claim.reason}"
    if node.maintenance and node.maintenance != node.reason:
        yield node.maintenance
    if node.no_spare:
        yield node.no_spare


def state_of(node: admin_pb2.NodeSummary) -> Text:
    """Return the state of a node, and what is beside it, in its colour."""
    shown = formatting.state(node.state)
    if _is_withheld(node):
        shown.append(f", {_withheld(node)}", "yellow")
    if node.doubt:
        return shown.append(", doubtful", "yellow")
    return shown if node.connected or node.state == "lost" else shown.append(", away", "yellow")


def _is_withheld(node: admin_pb2.NodeSummary) -> bool:
    return bool(node.claims) and node.state in _WITHHELD


def _withheld(node: admin_pb2.NodeSummary) -> str:
    drains = all(claim.draining for claim in node.claims)
    return _how(node, node.claims[0]) if drains else "isolated"


def _how(node: admin_pb2.NodeSummary, claim: admin_pb2.Claim) -> str:
    """Return what a claim does to a node: its ranks may stay, or none is left, or may not."""
    if not claim.draining:
        return "isolated"
    return "draining" if node.jobs else "drained"


def _cells(node: admin_pb2.NodeSummary, now_ns: int, *, hardware: bool) -> list[str]:
    cells = [
        node.node,
        _state(node),
        formatting.duration(now_ns - node.since_ns),
        ",".join(claim.owner for claim in node.claims) or "-",
        str(node.findings),
        ",".join(node.jobs) or "-",
    ]
    if hardware:
        cells += [
            node.domain or "-",
            ",".join(node.groups) or "-",
            str(node.cpu_count or "-"),
            formatting.size(node.memory_bytes) if node.memory_bytes else "-",
            node.accelerators or "none",
        ]
    return cells


def _state(node: admin_pb2.NodeSummary) -> str:
    # Nearly all of a large fleet: worth not making a text of.
    here = node.connected or node.state == "lost"
    plain = here and not node.doubt and not _is_withheld(node)
    return node.state if plain else state_of(node).plain


def _coloured(node: admin_pb2.NodeSummary, cell: str) -> str:
    style = "yellow" if node.doubt else formatting.state_style(node.state)
    return Style.parse(style).render(cell)
