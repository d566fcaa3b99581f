"""State: what the controller knows and has decided; the value that the journal folds to."""

from dataclasses import dataclass, field

from everstep_controller.core.model.isolation import DriverRecord
from everstep_controller.core.model.job import (
    EndedJob,
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
    "EndedJob",
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
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    # Highest sequence that was taken of each agent's outbox.
    outboxes: dict[str, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    # Node, job or "fleet" to the reason of the pause.
    paused: dict[str, str] = field(default_factory=dict)
    # Launchers to refuse, "job@node" to the reason.
    refusals: dict[str, str] = field(default_factory=dict)
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    # By "node/kind".
    rejected_records: dict[str, RejectedRecords] = field(default_factory=dict)
    # Why the controller acts on nothing; empty while it does.
    halted: str = ""
    recovering: bool = False
    highest_term_seen: int = 0
    # Highest generation that agents have seen of each job.
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
    event_count: int = 0


# --- index from each node to its jobs, so that no event has to look at all jobs -------------------


def note_node(state: State, node: str, job: JobRecord) -> None:
    """Remember that a node has to do with a job; jobs that it has left are forgotten."""
    record = state.nodes[node]
    known = [one.name for one in jobs_involving(state, record) if one.name != job.name]
    record.jobs = [*known, job.name]


def jobs_involving(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node takes part in, waits for, or may hold some state of."""
    known = [state.jobs[name] for name in node.jobs if name in state.jobs]
    return [
        job
        for job in known
        if _takes_part(job, node.name)
        or node.name in job.lineage.holders
        or node.name in job.successors
    ]


def jobs_of_node(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node is a member of, or waits to be."""
    return [job for job in jobs_involving(state, node) if _takes_part(job, node.name)]


def _takes_part(job: JobRecord, node: str) -> bool:
    return node in job.launchers or node in job.generation.members
