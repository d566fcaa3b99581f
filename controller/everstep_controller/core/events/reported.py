"""Reports of agents as events: a record of `everstep_common.reports`, and where it came from."""

from everstep_common.reports import (
    CheckFinished,
    FindingCleared,
    FindingRaised,
    GenerationFinished,
    GenerationStopped,
    InjectionChanged,
    LauncherJoined,
    LauncherLeft,
    PhaseReached,
    RankExited,
    RestartedHere,
    RollbackAsked,
)
from everstep_controller.core.model.node import Reported

__all__ = ["Reported", "ReportedEvent"]

# Steps are put together to rows before they are journaled: see JobProgressed.
ReportedEvent = (
    Reported[LauncherJoined]
    | Reported[LauncherLeft]
    | Reported[PhaseReached]
    | Reported[RankExited]
    | Reported[RollbackAsked]
    | Reported[RestartedHere]
    | Reported[GenerationStopped]
    | Reported[GenerationFinished]
    | Reported[FindingRaised]
    | Reported[FindingCleared]
    | Reported[CheckFinished]
    | Reported[InjectionChanged]
)
