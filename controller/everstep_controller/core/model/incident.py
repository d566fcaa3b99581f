"""Incidents of the fleet: faults with one cause, the nodes or jobs that they hit, and their end."""

from dataclasses import dataclass, field
from enum import StrEnum


class IncidentKind(StrEnum):
    """Kind of the thing that an incident hit."""

    JOB = "job"


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """One fault of an incident: a finding, a death, a silence, or somebody's word."""

    at_ns: int
    cause: str
    # The node that it is blamed on; empty when that is not known.
    node: str
    message: str


@dataclass(slots=True, kw_only=True)
class Incident:
    """Incident: faults that have one cause; each kind adds what is done about it."""

    id: str
    kind: IncidentKind
    # Names of the nodes, or ids of the jobs, that it hit.
    subjects: list[str]
    # When the first of its faults happened, and when it was over; 0 while it is open.
    onset_ns: int
    over_ns: int = 0
    # The cause by its kind's names, the node where it was, and a sentence for people.
    cause: str
    node: str
    message: str
    # The first faults that were taken for it, in the order in which they were learned.
    parts: list[IncidentPart] = field(default_factory=list)
