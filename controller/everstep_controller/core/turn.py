"""Turn: one event being handled, in two phases, with state, time, marks, timers and actions.

A handler gets a Turn: it records what the event says, marks what may have changed by that, tells
people and sets timers. Whatever takes a node or job through its lifecycle, claims a node for
automation, opens an incident or gives an order wants a Reconciliation; only the dispatch of events
makes one, when the handler is done.
"""

from dataclasses import dataclass, field, replace
from typing import Self

from everstep_controller.core.actions import About, Action, Announce, SetTimer
from everstep_controller.core.model.state import FLEET, State
from everstep_controller.core.model.timers import TimerKind

__all__ = ["Marks", "Reconciliation", "TimerKind", "Turn", "Unsent"]

# Evidence is on its way for so long as a rule; older than that a line says how old it is.
_NOW_NS = 1_000_000_000


@dataclass(slots=True)
class Marks:
    """Marks: nodes, jobs and windows, by id, that may have changed since they were reconciled."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    windows: set[str] = field(default_factory=set)
    # Marked jobs that changed state or lost a launcher: which nodes wait as spares may differ now.
    moved: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything is marked."""
        return bool(self.nodes or self.jobs or self.windows)


@dataclass(slots=True)
class Unsent:
    """Receivers of every order that the state calls for, sent when all is decided."""

    everybody: bool = False
    # Agents, by their nodes, and isolation drivers.
    nodes: set[str] = field(default_factory=set)
    drivers: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Turn:
    """First phase of an event: what a handler may do besides recording facts in the state."""

    state: State
    now_ns: int
    marks: Marks = field(default_factory=Marks)
    unsent: Unsent = field(default_factory=Unsent)
    # When the newest evidence was seen of which the event tells.
    evidence_ns: int = 0
    _actions: list[Action] = field(default_factory=list)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return all that the shell is to do, in the order in which it was decided."""
        return tuple(self._actions)

    def mark_node(self, name: str) -> None:
        """Have a node, and the jobs that have to do with it, reconciled after the event."""
        self.marks.nodes.add(name)

    def mark_job(self, job_id: str, *, moved: bool = False) -> None:
        """Have a job reconciled after the event; ``moved``: its spares may be others now."""
        self.marks.jobs.add(job_id)
        if moved:
            self.marks.moved.add(job_id)

    def mark_window(self, window_id: str) -> None:
        """Have a maintenance window reconciled after the event."""
        self.marks.windows.add(window_id)

    def mark_fleet(self) -> None:
        """Have all nodes and jobs reconciled after the event: it concerns every one of them."""
        self.marks.nodes.update(self.state.nodes)
        self.marks.jobs.update(self.state.jobs)

    def announce(self, subject: str, reason: str, message: str, about: About | None = None) -> None:
        """Tell people; ``about`` is for programs."""
        number = f"{self.state.event_count}.{len(self._actions)}"
        if self.evidence_ns and self.now_ns - self.evidence_ns > _NOW_NS:
            about = about or About()
            if not about.evidence_ns:
                about = replace(about, evidence_ns=self.evidence_ns)
        self._actions.append(
            Announce(
                id=f"say/{number}", subject=subject, reason=reason, message=message, about=about
            )
        )

    def set_timer(self, timer: str, after_ns: int) -> None:
        """Have TimerDue reported after a while."""
        at_ns = self.now_ns + after_ns
        self.state.timers[timer] = at_ns
        self._actions.append(SetTimer(id=f"timer/{timer}/{at_ns}", timer=timer, at_ns=at_ns))

    def drop_timer(self, timer: str) -> None:
        """Make a timer's TimerDue meaningless."""
        self.state.timers.pop(timer, None)

    def has_timer(self, kind: TimerKind, subject: str) -> bool:
        """Return whether a timer is set that has not come due yet."""
        return f"{kind}/{subject}" in self.state.timers

    def paused(self, subject: str) -> str:
        """Return why automation is paused for a node or job; empty when it is not."""
        return self.state.paused.get(subject) or self.state.paused.get(FLEET, "")


@dataclass(slots=True)
class Reconciliation(Turn):
    """Second phase of an event: what may be done besides by whatever decides from the state."""

    @classmethod
    def follow(cls, turn: Turn) -> Self:
        """Return the second phase of a turn whose handler is done."""
        return cls(
            turn.state, turn.now_ns, turn.marks, turn.unsent, turn.evidence_ns, turn._actions
        )

    def order(self, *wanted: Action) -> None:
        """Have the shell do what was decided."""
        self._actions.extend(wanted)

    def take_windows(self) -> list[str]:
        """Return which windows are marked, in order, and mark none any more."""
        windows, self.marks.windows = self.marks.windows, set()
        return sorted(windows & self.state.windows.keys())

    def take_nodes(self) -> set[str]:
        """Return which nodes are marked, and mark none any more."""
        nodes, self.marks.nodes = self.marks.nodes, set()
        return nodes

    def take_marks(self) -> Marks:
        """Return what is marked, and mark nothing any more but windows."""
        marks, self.marks = self.marks, Marks(windows=self.marks.windows)
        return marks
