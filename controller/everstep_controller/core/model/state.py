"""State: what the controller knows and has decided; the value that the journal folds to."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from everstep_controller.core.model.isolation import DriverRecord
from everstep_controller.core.model.job import (
    JobIncident,
    JobRecord,
    JobState,
    Launcher,
    Planned,
)
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    SCHEDULER,
    Claim,
    Confirmation,
    Injection,
    NodeRecord,
    NodeState,
    OpenFinding,
    RejectedRecords,
    SpareCheck,
)
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.windows import Window

__all__ = [
    "AUTOMATION",
    "CONTROLLER",
    "FLEET",
    "MAINTENANCE",
    "OPERATOR",
    "SCHEDULER",
    "Claim",
    "Confirmation",
    "DriverRecord",
    "Injection",
    "JobIncident",
    "JobRecord",
    "JobState",
    "Launcher",
    "NodeRecord",
    "NodeState",
    "OpenFinding",
    "Planned",
    "RejectedRecords",
    "SpareCheck",
    "State",
]

# What is no node and no job, but may be paused, or told of.
FLEET = "fleet"

CONTROLLER = "controller"


@dataclass(slots=True)
class State:
    """State of the core, whole; each field is plain data, so that it can be written down."""

    term: int = 0
    settings: Settings = field(default_factory=Settings)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    # By their ids; and for each name, the id of the newest job that has begun under it.
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    # Highest sequence that was taken of each agent's outbox.
    outboxes: dict[str, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    # Node, name of a job, or "fleet" to the reason of the pause.
    paused: dict[str, str] = field(default_factory=dict)
    # Launchers to refuse, "name of the job@node" to the reason.
    refusals: dict[str, str] = field(default_factory=dict)
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    # By "node/kind".
    rejected_records: dict[str, RejectedRecords] = field(default_factory=dict)
    # Why the controller acts on nothing; empty while it does.
    halted: str = ""
    recovering: bool = False
    highest_term_seen: int = 0
    # Highest generation that agents have seen under each name of a job.
    generations_seen: dict[str, int] = field(default_factory=dict)
    self_suspect_since_ns: int = 0
    # Nodes that were being drained after the last event.
    draining: list[str] = field(default_factory=list)
    # Nodes that automation was not allowed to isolate.
    deferred: list[str] = field(default_factory=list)
    # Maintenance windows by their ids; how many were ordered so far, so that no id comes twice.
    windows: dict[str, Window] = field(default_factory=dict)
    windows_ordered: int = 0
    # By their ids, what broke: today all are of jobs.
    incidents: dict[str, JobIncident] = field(default_factory=dict)
    # Isolation drivers by name.
    drivers: dict[str, DriverRecord] = field(default_factory=dict)
    # Events that were taken: the number of the newest in the journal, less those that say no news.
    event_count: int = 0

    def job(self, key: str) -> JobRecord | None:
        """Return the job of an id, or the newest one that has begun under a name."""
        return self.jobs.get(key) or self.jobs.get(self.names.get(key, ""))

    def newest(self, name: str) -> JobRecord:
        """Return the newest job that has begun under a name. Raises KeyError."""
        return self.jobs[self.names[name]]

    def job_of_lineage(self, lineage_id: str) -> JobRecord | None:
        """Return the newest job of a lineage that has begun: what is left of it is that job's."""
        known = [job for job in self.jobs.values() if job.lineage_id == lineage_id]
        return next((job for job in reversed(known) if not job.after), None)

    def is_current(self, job: JobRecord) -> bool:
        """Return whether no other job has begun under the name since."""
        return self.names.get(job.name) == job.id

    def newest_jobs(self) -> Iterator[JobRecord]:
        """Yield the newest job that has begun under each name."""
        return (self.jobs[job_id] for job_id in self.names.values())


# --- index from each node to its jobs, so that no event has to look at all jobs -------------------


def note_node(state: State, node: str, job: JobRecord) -> None:
    """Remember that a node has to do with a job; jobs that it has left are forgotten."""
    record = state.nodes[node]
    known = [one.id for one in jobs_involving(state, record) if one.id != job.id]
    record.jobs = [*known, job.id]


def jobs_involving(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node takes part in, waits for, or may hold some state of."""
    known = [state.jobs[job_id] for job_id in node.jobs if job_id in state.jobs]
    return [job for job in known if _takes_part(job, node.name) or node.name in job.lineage.holders]


def jobs_of_node(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node is a member of, or waits to be."""
    return [job for job in jobs_involving(state, node) if _takes_part(job, node.name)]


def _takes_part(job: JobRecord, node: str) -> bool:
    return node in job.launchers or node in job.generation.members
