"""One event's turn: the state it changes, the time it came, and the actions it calls for."""

from dataclasses import dataclass, field

from everstep_common.reports import LauncherJoined
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.events import Reported
from everstep_controller.core.model.state import FLEET, State


@dataclass(slots=True)
class Turn:
    """What a handler works on. Handlers append actions; nothing else leaves the core."""

    state: State
    now_ns: int
    actions: list[Action] = field(default_factory=list)
    # Nodes that lost the right to take ranks while a job was planned: all jobs hear of it after.
    unusable: list[str] = field(default_factory=list)
    # What may have changed of nodes and jobs as far as planned work is concerned.
    nodes_changed: set[str] = field(default_factory=set)
    jobs_changed: set[str] = field(default_factory=set)
    # Launchers that waited for the end of the job before theirs.
    joining: list[Reported[LauncherJoined]] = field(default_factory=list)

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

    def paused(self, subject: str) -> str:
        """Return why automation is paused for a node or job; empty when it is not."""
        return self.state.paused.get(subject) or self.state.paused.get(FLEET, "")
