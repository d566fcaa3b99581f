"""Vault reports: what a node holds for a job besides its snapshots, such as warm standbys."""

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
