"""What the core is told. Each event is journaled before the core sees it, by its class's name.

``at_ns`` fields are on the controller's timeline and may lie before the event's own time: they say
when the thing happened, the journal says when it was learned.
"""

from everstep_controller.core.events.controller import (
    ControllerEvent,
    ControllerStarted,
    EventRejected,
    RecordRejected,
    RecoveryBegun,
    SettingsApplied,
    TimerDue,
    VerdictChanged,
)
from everstep_controller.core.events.jobs import (
    GenerationFinished,
    GenerationStopped,
    JobProgressed,
    LauncherEvent,
    LauncherLeft,
    PhaseReached,
    RankExited,
    RestartedHere,
    RollbackAsked,
)
from everstep_controller.core.events.nodes import (
    AgentEvent,
    CheckFinished,
    FindingCleared,
    FindingRaised,
    InjectionChanged,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
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
    OperatorReleased,
    RestartCancelled,
    RestartOrdered,
)
from everstep_controller.core.events.vault import (
    BreakpointReached,
    CadenceChosen,
    KeeperChosen,
    LayoutLearned,
    RecoveryStepChosen,
    StepRecoverable,
    VaultEvent,
)
from everstep_controller.core.model.join import LauncherJoined

__all__ = [
    "AutomationPaused",
    "AutomationResumed",
    "BreakpointReached",
    "CadenceChosen",
    "CheckFinished",
    "ControllerStarted",
    "Event",
    "EventRejected",
    "FindingCleared",
    "FindingRaised",
    "GenerationFinished",
    "GenerationStopped",
    "InjectionChanged",
    "InjectionCleared",
    "InjectionOrdered",
    "JobProgressed",
    "KeeperChosen",
    "LauncherJoined",
    "LauncherLeft",
    "LayoutLearned",
    "MaintenanceCancelled",
    "MaintenanceOrdered",
    "NodeConnected",
    "NodeDisconnected",
    "OperatorDrained",
    "OperatorForgotJob",
    "OperatorIsolated",
    "OperatorReleased",
    "PeerJudged",
    "PeerReported",
    "PhaseReached",
    "RankExited",
    "RecordRejected",
    "RecoveryBegun",
    "RecoveryStepChosen",
    "RestartCancelled",
    "RestartOrdered",
    "RestartedHere",
    "RollbackAsked",
    "SettingsApplied",
    "StepRecoverable",
    "TimerDue",
    "VerdictChanged",
]

Event = ControllerEvent | AgentEvent | OperatorEvent | LauncherEvent | VaultEvent
