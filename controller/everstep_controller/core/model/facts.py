"""Small facts that events carry and the state keeps."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of an agent's outbox that an event was made from; makes redelivery harmless."""

    node: str
    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """What an agent said of one job when it connected."""

    job: str
    generation: int
    launcher: bool
    # The plan that its newest generation comes from; 0 when the agent did not say.
    planned_generation: int = 0
    # Of its launcher; 0 where there is none, or it is not known.
    job_id: int = 0


class Phase(Enum):
    """How far the processes of a generation have come on one node, in this order."""

    STARTED = "started"
    ATTACHED = "attached"
    RESTORED = "restored"


class InjectionState(Enum):
    """Where a fault is that was ordered on purpose."""

    ORDERED = "ordered"
    ACTIVE = "active"
    REFUSED = "refused"
    ENDED = "ended"
