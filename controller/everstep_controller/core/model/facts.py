"""Facts in events and state: the origin of a record, a job on a node, a report of an agent."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from everstep_common.reports import Report


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of an agent's outbox that an event was made from; makes redelivery harmless."""

    node: str
    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """State of one job on a node, as its agent told it when it connected."""

    # Name of the job.
    job: str
    generation: int
    launcher: bool
    # The plan that the job's newest generation comes from; 0 when the agent did not say.
    planned_generation: int = 0
    # Id of the job that its launcher belongs to; "" where there is no launcher, or it is not known.
    job_id: str = ""


R_co = TypeVar("R_co", bound=Report, covariant=True)


@dataclass(frozen=True, slots=True)
class Reported(Generic[R_co]):
    """Event that carries an agent's report; the report's type decides which handler takes it."""

    origin: Origin
    # When it happened.
    at_ns: int
    report: R_co
    # Name of the job that it is about; "": it is about the node.
    job: str = ""
