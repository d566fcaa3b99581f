"""Display of the demo: a terminal that is redrawn, a log that grows, or nothing."""

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from everstep_cli.demo.cluster_view import ClusterView
from everstep_cli.views import formatting, tables
from everstep_cli.views.findings import event_line

# The story takes what the rest of the picture leaves of the screen.
_STORY_LINES_MIN, _STORY_LINES_MAX = 3, 12
_FRAMES_PER_S = 4


class Display(Protocol):
    """Display of the demo: is told each step, and shown each state of the cluster."""

    def announce(self, step: str) -> None:
        """Tell what is being played now."""
        ...

    def show(self, view: ClusterView, steps_per_s: float) -> None:
        """Show what the controller says now."""
        ...

    def close(self) -> None:
        """End the show."""
        ...


class NoDisplay:
    """Display for --json: nothing is shown before the end."""

    def announce(self, step: str) -> None:
        """See Display."""

    def show(self, view: ClusterView, steps_per_s: float) -> None:
        """See Display."""

    def close(self) -> None:
        """See Display."""


class LogDisplay:
    """Display for output that is no terminal: every step and every event once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_event = 0

    def announce(self, step: str) -> None:
        """See Display."""
        self._console.print(Text(f"== {step}", style="bold"), soft_wrap=True)

    def show(self, view: ClusterView, steps_per_s: float) -> None:
        """See Display."""
        for event in view.events:
            if event.id > self._last_event:
                self._last_event = event.id
                self._console.print(event_line(event), soft_wrap=True)

    def close(self) -> None:
        """See Display."""


class TerminalDisplay:
    """Display for a terminal: nodes, job, events, and the steps of the demo, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # The last one is being played.
        self._steps: list[str] = []
        self._view = ClusterView()
        self._rate = 0.0
        self._live = Live(console=console, refresh_per_second=_FRAMES_PER_S, transient=False)
        self._live.start()

    def announce(self, step: str) -> None:
        """See Display."""
        self._steps.append(step)
        self._draw()

    def show(self, view: ClusterView, steps_per_s: float) -> None:
        """See Display."""
        self._view, self._rate = view, steps_per_s
        self._draw()

    def close(self) -> None:
        """See Display."""
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(frame(self._steps, self._view, self._rate, self._console.height))


def frame(
    done_steps: Sequence[str], view: ClusterView, steps_per_s: float, height: int
) -> RenderableType:
    """Return one picture of the demo, no higher than the screen."""
    room = height - len(view.nodes) - 9 - _STORY_LINES_MIN
    steps = done_steps[-max(room, 1) :]
    done = [Text.assemble(("  done  ", "green"), step) for step in steps[:-1]]
    now = [Text.assemble(("  now   ", "bold cyan"), (step, "bold")) for step in steps[-1:]]
    others = len(steps) + len(view.nodes) + 9
    lines = min(max(height - others, _STORY_LINES_MIN), _STORY_LINES_MAX)
    story = [event_line(event) for event in view.events[-lines:]]
    for line in story:
        line.no_wrap, line.overflow = True, "ellipsis"
    blank = [Text()] * (lines - len(story))
    return Group(
        Text("Everstep demo", style="bold"), *done, *now, Text(),
        _nodes(view), Text(), _job(view, steps_per_s), Text(), *story, *blank,
    )  # fmt: skip


def _nodes(view: ClusterView) -> RenderableType:
    made = tables.table("node", "state", "rank", "claims", "findings", right=("rank", "findings"))
    for node in view.nodes:
        place = view.members.index(node.node) if node.node in view.members else None
        spare = view.job is not None and node.node in view.job.summary.spares and not node.claims
        made.add_row(
            node.node,
            formatting.state(node.state),
            "spare" if spare else "-" if place is None else str(place),
            " ".join(claim.owner for claim in node.claims) or "-",
            str(node.findings),
        )
    return made


def _job(view: ClusterView, steps_per_s: float) -> Text:
    if view.job is None:
        return Text("no job yet", style="dim")
    summary = view.job.summary
    told = Text.assemble(
        (f"job {summary.job} ", "bold"),
        formatting.state(summary.state),
        f", generation {summary.generation}, step {view.step}, {steps_per_s:.1f} steps/s, "
        f"ETTR {summary.ettr_time:.1%}\n",
        _way_back(view),
    )
    told.no_wrap, told.overflow = True, "ellipsis"
    return told


def _way_back(view: ClusterView) -> Text:
    """Return a line of `everstep snapshots`: where the job would go now, and from where."""
    table = view.snapshots
    if table is None or not table.has_restore:
        return Text("no snapshot yet", style="dim")
    goal = (table.restore_generation, table.restore_step)
    chosen = (line for line in table.steps if (line.generation, line.step) == goal)
    tiers = ", ".join(tier.tier for line in chosen for tier in line.tiers)
    return Text(f"a fault now: back to the state after step {table.restore_step} ({tiers})")
