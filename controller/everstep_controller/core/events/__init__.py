"""Events: all inputs of the core; each is journaled under its class's name before it is handled.

``at_ns`` fields are on the controller's timeline and may lie before the event's own time: they say
when the thing happened, the journal says when it was learned.
"""

import typing
from dataclasses import dataclass

from everstep_common.reports import GenerationStopped, Report
from everstep_controller.core.events.agents import (
    REPORTS,
    AgentAnswered,
    AgentEvent,
    AgentLeaving,
    EqualExits,
    FindingSettled,
    JobProgressed,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
    RanksExited,
    ReportedEvent,
)
from everstep_controller.core.events.controller import (
    CadenceChosen,
    CertificateRenewed,
    ClusterNamed,
    ControllerEvent,
    ControllerStalled,
    ControllerStarted,
    DriverReported,
    EnrolmentRefused,
    EventRejected,
    FinalSaveEnded,
    HangJudged,
    KeeperChosen,
    LayoutLearned,
    NodeEnrolled,
    PodEnrolled,
    RecordRejected,
    RecoveryBegun,
    RollCalled,
    SettingsApplied,
    SlowJudged,
    StepRecoverable,
    StoringMeasured,
    TimeoutJudged,
    TimerDue,
    VaultEvent,
    VerdictChanged,
)
from everstep_controller.core.events.operators import (
    AutomationPaused,
    AutomationResumed,
    InjectionCleared,
    InjectionOrdered,
    MaintenanceCancelled,
    MaintenanceOrdered,
    NodeDeclaredLost,
    NodeRemoved,
    OperatorDrained,
    OperatorEvent,
    OperatorForgotJob,
    OperatorIsolated,
    OperatorOrder,
    OperatorReleased,
    PairTestOrdered,
    RestartCancelled,
    RestartOrdered,
    StopOrdered,
)
from everstep_controller.core.model.node import Reported
from everstep_controller.core.model.snapshots import RecoveryStepChosen
from everstep_controller.core.model.timers import TimerKind

Event = (
    ControllerEvent
    | DriverReported
    | AgentEvent
    | OperatorOrder
    | ReportedEvent
    | JobProgressed
    | RanksExited
    | VaultEvent
)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that came together: recorded one after the other, and decided by once."""

    events: tuple[Event, ...]


JournaledEvent = Event | EventBatch

# What comes from thousands of nodes at once, and whose handlers only record it. Timers are apart,
# which come due also while the core is halted; and steps, which are columns in the journal.
_TOLD_AT_ONCE = frozenset(
    {NodeDisconnected, PeerReported, PeerJudged, AgentAnswered, RanksExited, GenerationStopped}
)
_TIMERS_AT_ONCE = (f"{TimerKind.SILENCE}/", f"{TimerKind.CONFIRM}/")


def batch_of(event: Event) -> str:
    """Return with what kind of events one may be in a batch; empty for one that stands alone."""
    if isinstance(event, TimerDue):
        return "timers" if event.timer.startswith(_TIMERS_AT_ONCE) else ""
    if isinstance(event, JobProgressed):
        return "progress"
    return "told" if kind_of(event) in _TOLD_AT_ONCE else ""


def each_event(event: JournaledEvent) -> tuple[Event, ...]:
    """Return the events of a batch in their order, or the event that stands alone."""
    return event.events if isinstance(event, EventBatch) else (event,)


def event_kinds() -> set[type]:
    """Return all types of events that are defined here; of those with a report, the type of that.

    Orders of operators that stand beside their handlers are not among them.
    """
    listed = set(typing.get_args(Event)) - {Reported[Report], OperatorOrder}
    return listed | REPORTS | set(typing.get_args(OperatorEvent))


def kind_of(event: JournaledEvent) -> type:
    """Return what decides who handles an event: its type, or that of the report that it carries."""
    return type(event.report) if isinstance(event, Reported) else type(event)
