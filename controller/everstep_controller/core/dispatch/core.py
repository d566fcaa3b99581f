"""Core: takes one event at a time, changes the state, and returns the actions that follow."""

from collections.abc import Iterable

from everstep_controller.core import events, fleet, hangs, jobs, nodes, planned, recovery
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.dispatch import controller
from everstep_controller.core.dispatch.reconcile import reconcile
from everstep_controller.core.jobs import orders
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.state import State
from everstep_controller.core.model.timers import comes_due_while_halted
from everstep_controller.core.registry import merge_handlers, merge_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_PACKAGES = (controller, nodes, jobs, recovery, hangs, planned, fleet)
_HANDLERS = merge_handlers(package.HANDLERS for package in _PACKAGES)
_TIMERS = merge_timers(package.TIMERS for package in _PACKAGES)
# All that a journal may hold; of events that carry a report, the types of the reports.
EVENT_KINDS = frozenset(_HANDLERS) | {events.TimerDue}
_WHILE_HALTED = frozenset(
    {
        events.ControllerStarted,
        events.ClusterNamed,
        events.ControllerStalled,
        events.SettingsApplied,
        events.NodeConnected,
        events.RecoveryBegun,
        events.EventRejected,
    }
)


class Core:
    """Pure core: folds events into its own state, deterministically, and returns the actions."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()

    def handle(self, event: events.JournaledEvent, now_ns: int) -> list[Action]:
        """Take an event, or a batch, that was learned at ``now_ns``; return what it calls for.

        A record that was taken before, and anything but the controller's own affairs while it is
        halted, changes nothing.
        """
        turn = Turn(self.state, now_ns)
        count = self.state.event_count
        for one in events.each_event(event) if self.takes(event) else ():
            if self._is_news(one):
                self.state.event_count += 1
                _take_event(turn, one)
        if self.state.event_count != count:
            self.decide(Reconciliation.follow(turn))
        if self.state.halted:
            return [action for action in turn.actions if isinstance(action, Announce | SetTimer)]
        return _each_once(turn.actions)

    def decide(self, turn: Reconciliation) -> None:
        """Decide what follows from all that an event has marked."""
        reconcile(turn)

    def takes(self, event: events.JournaledEvent) -> bool:
        """Return whether an event is taken now: while it is halted, only some are."""
        first = events.each_event(event)[0]  # the others of a batch are of its kind
        if self.state.halted and isinstance(first, events.TimerDue):
            return comes_due_while_halted(first.timer)
        return not self.state.halted or type(first) in _WHILE_HALTED

    def due(self, now_ns: int) -> list[Action]:
        """Return every action that the state still calls for, as after a restart."""
        del now_ns  # Timers that are overdue come due at once in the shell.
        return [] if self.state.halted else list(orders.outstanding(self.state))

    def _is_news(self, event: events.Event) -> bool:
        """Return whether a record is new, and remember that it was taken."""
        origin: Origin | None = getattr(event, "origin", None)
        return origin is None or self._take(origin)

    def _take(self, origin: Origin) -> bool:
        if origin.sequence <= self.state.outboxes.get(origin.outbox, 0):
            return False
        self.state.outboxes[origin.outbox] = origin.sequence
        return True


def _each_once(actions: Iterable[Action]) -> list[Action]:
    """Return actions without repetitions; by their ids, for the hash of one takes all fields."""
    found: list[Action] = []
    known: dict[str, list[Action]] = {}
    for action in actions:
        same = known.setdefault(action.id, [])
        if action not in same:
            same.append(action)
            found.append(action)
    return found


def _take_event(turn: Turn, event: events.Event) -> None:
    turn.evidence_ns = getattr(event, "seen_ns", 0) or getattr(event, "at_ns", 0)
    if isinstance(event, events.TimerDue):
        _take_timer(turn, event.timer)
    else:
        _HANDLERS[events.kind_of(event)](turn, event)
        # Progress comes every second; its handler marks the job itself where a decision may change.
        if not isinstance(event, events.JobProgressed):
            job = turn.state.job(getattr(event, "job", ""))
            if job is not None:
                turn.mark_job(job.id)


def _take_timer(turn: Turn, timer: str) -> None:
    at_ns = turn.state.timers.get(timer)
    if at_ns is None or at_ns > turn.now_ns:
        return
    turn.drop_timer(timer)
    kind, _, name = timer.partition("/")
    _TIMERS[TimerKind(kind)](turn, name)
