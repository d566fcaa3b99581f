"""Questions about a job's ranks on a node, asked when somebody asks and answered with their id.

Beside them is what their launcher is told: neither is journaled.
"""

from dataclasses import dataclass

from everstep_common import quantities as q


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """Question for what ranks of a job wrote lately on a node; OutputRead answers, with its id."""

    read_id: q.Key
    job: q.JobName
    job_id: q.JobId = ""
    # Only of this rank; None: of all.
    rank: q.Rank | None = None
    # Only what came after this number.
    after: q.Count = 0


@dataclass(frozen=True, slots=True)
class InspectRanks:
    """Question what the ranks of a job do at this moment on a node; RanksInspected answers."""

    inspection_id: q.Key
    job: q.JobName
    job_id: q.JobId = ""
    # What was seen of this generation when it ended because ranks gave up waiting; 0: now.
    generation: q.ToldGeneration = 0
    # Of ranks that step: only when they enqueued their newest collectives.
    recent: bool = False
    # A person asks, who waits longer on a loaded machine.
    patient: bool = False


@dataclass(frozen=True, slots=True)
class TellLauncher:
    """A sentence for the terminal of a job's launcher on a node; nobody answers."""

    job: q.JobName
    job_id: q.JobId
    text: q.Evidence
