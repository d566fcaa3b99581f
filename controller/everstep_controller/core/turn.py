"""Turn: one event being handled, with its state and time, marks, timers and actions."""

from dataclasses import dataclass, field
from enum import StrEnum

from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.model.state import FLEET, State


class TimerKind(StrEnum):
    """Purpose of a timer; the part of its name before the slash."""

    # Of nodes: a closed stream, a silence to confirm, checks, the end of a probation.
    STREAM = "stream"
    CONFIRM = "confirm"
    CHECK = "check"
    SPARE = "spare"
    PROBATION = "probation"
    INJECTION = "injection"
    # Of an isolation driver: the reading after a call has failed.
    ISOLATION = "isolation"
    # Of jobs: wanted nodes, an unreachable state, missing steps, the last step, all launchers, the
    # next job of the name, and the end of being kept.
    FORMING = "forming"
    RETRY = "retry"
    STALLED = "stalled"
    BREAKPOINT = "breakpoint"
    ABANDONED = "abandoned"
    NEXT = "next"
    FORGET = "forget"
    # Of planned work: a chosen step, a job that stands still, nodes that wait, a window.
    PLANNED = "planned"
    STILL = "still"
    GROWTH = "growth"
    MAINTENANCE = "maintenance"
    # Of the controller: rejected records, and the rebuilding of a journal.
    REJECTED = "rejected"
    RECOVERY = "recovery"


@dataclass(slots=True)
class Marks:
    """The nodes and jobs (by ids) that may have changed, and have not been reconciled since."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    # Marked jobs that changed state or lost a launcher: which nodes wait as spares may differ now.
    moved: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything is marked."""
        return bool(self.nodes or self.jobs)


@dataclass(slots=True)
class Turn:
    """One event being handled: handlers record, mark and append actions; nothing else leaves."""

    state: State
    now_ns: int
    actions: list[Action] = field(default_factory=list)
    marks: Marks = field(default_factory=Marks)
    # Nodes whose agents have to be told everything again that the state calls for.
    untold: set[str] = field(default_factory=set)

    def mark_node(self, name: str) -> None:
        """Have a node, and the jobs that have to do with it, reconciled after the event."""
        self.marks.nodes.add(name)

    def mark_job(self, job_id: str, *, moved: bool = False) -> None:
        """Have a job reconciled after the event; ``moved``: its spares may be others now."""
        self.marks.jobs.add(job_id)
        if moved:
            self.marks.moved.add(job_id)

    def mark_fleet(self) -> None:
        """Have all nodes and jobs reconciled after the event: it concerns every one of them."""
        self.marks.nodes.update(self.state.nodes)
        self.marks.jobs.update(self.state.jobs)

    def take_nodes(self) -> set[str]:
        """Return which nodes are marked, and mark none any more."""
        nodes, self.marks.nodes = self.marks.nodes, set()
        return nodes

    def take_marks(self) -> Marks:
        """Return what is marked, and start from scratch."""
        marks, self.marks = self.marks, Marks()
        return marks

    def announce(self, subject: str, reason: str, message: str) -> None:
        """Tell people."""
        number = f"{self.state.event_count}.{len(self.actions)}"
        self.actions.append(
            Announce(id=f"say/{number}", subject=subject, reason=reason, message=message)
        )

    def set_timer(self, timer: str, after_ns: int) -> None:
        """Have TimerDue reported after a while."""
        at_ns = self.now_ns + after_ns
        self.state.timers[timer] = at_ns
        self.actions.append(SetTimer(id=f"timer/{timer}/{at_ns}", timer=timer, at_ns=at_ns))

    def drop_timer(self, timer: str) -> None:
        """Make a timer's TimerDue meaningless."""
        self.state.timers.pop(timer, None)

    def has_timer(self, kind: TimerKind, subject: str) -> bool:
        """Return whether a timer is set that has not come due yet."""
        return f"{kind}/{subject}" in self.state.timers

    def paused(self, subject: str) -> str:
        """Return why automation is paused for a node or job; empty when it is not."""
        return self.state.paused.get(subject) or self.state.paused.get(FLEET, "")
