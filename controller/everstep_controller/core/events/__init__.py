"""Events: all inputs of the core; each is journaled under its class's name before it is handled.

``at_ns`` fields are on the controller's timeline and may lie before the event's own time: they say
when the thing happened, the journal says when it was learned.
"""

import typing

from everstep_common.reports import Report
from everstep_controller.core.events.agents import (
    REPORTS,
    AgentAnswered,
    AgentEvent,
    AgentLeaving,
    EqualExits,
    JobProgressed,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
    RanksExited,
    Reported,
    ReportedEvent,
)
from everstep_controller.core.events.controller import (
    CadenceChosen,
    ClusterNamed,
    ControllerEvent,
    ControllerStalled,
    ControllerStarted,
    DriverReported,
    EventRejected,
    FinalSaveEnded,
    KeeperChosen,
    LayoutLearned,
    RecordRejected,
    RecoveryBegun,
    SettingsApplied,
    StepRecoverable,
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
    OperatorDrained,
    OperatorEvent,
    OperatorForgotJob,
    OperatorIsolated,
    OperatorOrder,
    OperatorReleased,
    RestartCancelled,
    RestartOrdered,
)
from everstep_controller.core.model.snapshots import RecoveryStepChosen

__all__ = [
    "REPORTS",
    "AgentAnswered",
    "AgentLeaving",
    "AutomationPaused",
    "AutomationResumed",
    "CadenceChosen",
    "ClusterNamed",
    "ControllerStalled",
    "ControllerStarted",
    "DriverReported",
    "EqualExits",
    "Event",
    "EventRejected",
    "FinalSaveEnded",
    "InjectionCleared",
    "InjectionOrdered",
    "JobProgressed",
    "KeeperChosen",
    "LayoutLearned",
    "MaintenanceCancelled",
    "MaintenanceOrdered",
    "NodeConnected",
    "NodeDisconnected",
    "OperatorDrained",
    "OperatorForgotJob",
    "OperatorIsolated",
    "OperatorOrder",
    "OperatorReleased",
    "PeerJudged",
    "PeerReported",
    "RanksExited",
    "RecordRejected",
    "RecoveryBegun",
    "RecoveryStepChosen",
    "Reported",
    "RestartCancelled",
    "RestartOrdered",
    "SettingsApplied",
    "StepRecoverable",
    "TimerDue",
    "VerdictChanged",
]

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


def event_kinds() -> set[type]:
    """Return all types of events that are defined here; of those with a report, the type of that.

    Orders of operators that stand beside their handlers are not among them.
    """
    listed = set(typing.get_args(Event)) - {Reported[Report], OperatorOrder}
    return listed | REPORTS | set(typing.get_args(OperatorEvent))


def kind_of(event: Event) -> type:
    """Return what decides who handles an event: its type, or that of the report that it carries."""
    return type(event.report) if isinstance(event, Reported) else type(event)
