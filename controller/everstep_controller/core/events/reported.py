"""Reports of agents as events: a record of `everstep_common.reports`, and where it came from."""

from dataclasses import dataclass
from typing import Generic, TypeVar

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
    Report,
    RestartedHere,
    RollbackAsked,
)
from everstep_controller.core.model.facts import Origin

R_co = TypeVar("R_co", bound=Report, covariant=True)


@dataclass(frozen=True, slots=True)
class Reported(Generic[R_co]):
    """An agent reports something; who handles it follows from the type of the report."""

    origin: Origin
    # When it happened.
    at_ns: int
    report: R_co
    # Name of the job that it is about; "": it is about the node.
    job: str = ""


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
