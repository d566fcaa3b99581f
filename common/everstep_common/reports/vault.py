"""Vault reports: what a node says of a job besides its copies: warm standbys, failures to store."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common.bounds import Integer
from everstep_common.reports import quantities as q

# As many as Linux numbers processes (PID_MAX_LIMIT).
Processes = Annotated[int, Integer(0, 2**22)]


@dataclass(frozen=True, slots=True)
class Standbys:
    """The warm standbys here: how many wait, how many are to come, what they take together."""

    ready: Processes = 0
    making: Processes = 0
    memory_bytes: q.SizeBytes = 0
    # Why standbys are no longer made; "": they may be.
    ended: q.Line = ""


@dataclass(frozen=True, slots=True)
class PersistFailure:
    """A step that was ordered could not be brought to storage."""

    generation: q.Generation
    step: q.Step
    reason: q.Evidence
