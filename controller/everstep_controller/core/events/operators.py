"""Events of operators: what they order about nodes, jobs, maintenance and automation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorOrder:
    """Order of an operator; one that a single module is about may stand beside what takes it."""


@dataclass(frozen=True, slots=True)
class OperatorIsolated(OperatorOrder):
    """An operator claims a node."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorReleased(OperatorOrder):
    """An operator gives a node back and says that it is good again.

    Of fatal findings only the ``accepted`` are borne; with None, as in older journals, all.
    """

    node: str
    operator: str
    reason: str
    accepted: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OperatorDrained(OperatorOrder):
    """An operator wants no new ranks on a node, and those there moved at a step boundary."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeRemoved(OperatorOrder):
    """An operator says that a node is gone for good."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeDeclaredLost(OperatorOrder):
    """An operator says that a silent node is off: its jobs go on without it."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrdered(OperatorOrder):
    """An operator will work on nodes for a while."""

    nodes: tuple[str, ...]
    begin_ns: int
    end_ns: int
    operator: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceCancelled(OperatorOrder):
    """An operator will not work on nodes, or has finished before the time."""

    window: str
    operator: str


@dataclass(frozen=True, slots=True)
class RestartOrdered(OperatorOrder):
    """An operator wants a job restarted after a step; None leaves the step to the controller."""

    job: str
    operator: str
    reason: str
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class StopOrdered(OperatorOrder):
    """An operator wants a job ended after a step; None leaves the step to the controller."""

    job: str
    operator: str
    reason: str
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class RestartCancelled(OperatorOrder):
    """An operator does not want the restart, or stop, any more that was planned."""

    job: str
    operator: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AutomationPaused(OperatorOrder):
    """No automatic decision for this node or job; "fleet" for everything."""

    subject: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class AutomationResumed(OperatorOrder):
    """Automation goes on."""

    subject: str
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionOrdered(OperatorOrder):
    """An operator wants a fault made on a node, for a while."""

    node: str
    spec: str
    duration_ns: int
    operator: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InjectionCleared(OperatorOrder):
    """An operator ends an injection, or all of a node for an empty id."""

    node: str
    injection: str
    operator: str


@dataclass(frozen=True, slots=True)
class PairTestOrdered(OperatorOrder):
    """An operator wants a node tested, beside a partner or, for "", beside any that is good."""

    node: str
    partner: str
    operator: str


@dataclass(frozen=True, slots=True)
class OperatorForgotJob(OperatorOrder):
    """An operator has the memory dropped that is kept of a job that has ended."""

    job: str
    operator: str


OperatorEvent = (
    OperatorIsolated
    | OperatorReleased
    | OperatorDrained
    | NodeRemoved
    | NodeDeclaredLost
    | MaintenanceOrdered
    | MaintenanceCancelled
    | RestartOrdered
    | StopOrdered
    | RestartCancelled
    | AutomationPaused
    | AutomationResumed
    | InjectionOrdered
    | InjectionCleared
    | PairTestOrdered
    | OperatorForgotJob
)
