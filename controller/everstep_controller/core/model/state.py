"""State: what the controller knows and has decided; the value that the journal folds to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from everstep_common.job_ids import number_of_job
from everstep_common.judging.findings import Mode
from everstep_common.reports import LauncherJoined
from everstep_controller.core.model.agents import (
    LostEnd,
    LostJob,
    NamedRanks,
    RefusedAgent,
    SeenGeneration,
)
from everstep_controller.core.model.enrolment import Enrolment
from everstep_controller.core.model.fleet_index import FilingBasis, FleetIndex, keep_listed
from everstep_controller.core.model.groups import Group, GroupTable
from everstep_controller.core.model.isolation import DriverRecord
from everstep_controller.core.model.job import (
    JobIncident,
    JobRecord,
    OrphanedLauncher,
)
from everstep_controller.core.model.judged import JudgedIsolation
from everstep_controller.core.model.node import (
    NodeRecord,
    OpenFinding,
    RejectedRecords,
    Reported,
)
from everstep_controller.core.model.node_days import FleetDay
from everstep_controller.core.model.policy import NodePolicy
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.windows import Window

# What is no node and no job, but may be paused, or told of.
FLEET = "fleet"

CONTROLLER = "controller"


@dataclass(slots=True)
class RollCall:
    """Question to all agents at once whether they hear this controller, and how many have answered.

    A stream that is cut may look open for many seconds; only an answer shows that it is not.
    """

    id: str
    reason: str
    asked_ns: int
    # How many nodes something is expected from, and how many of them have answered.
    expected: int = 0
    heard: int = 0
    over: bool = False

    @property
    def by_most(self) -> bool:
        """Whether more than half have answered."""
        return self.heard * 2 > self.expected


@dataclass(slots=True)
class Outage:
    """Agents that fell silent at about the same time, of whom people are told at once."""

    since_ns: int
    # Those that are still away, in order.
    nodes: list[str] = field(default_factory=list)
    # How many there were when people were told last; and since when only a few are left.
    told: int = 0
    few_since_ns: int = 0


class _Indexed:
    """What has an index; no field of a dataclass, so it is neither written down nor compared."""

    __slots__ = ("group_table", "index")
    index: FleetIndex
    group_table: GroupTable

    def __post_init__(self) -> None:
        """Compute the index, also of a state that was written down."""
        self.reindex()

    def reindex(self) -> None:
        """Compute anew what is computed from groups and from all records."""
        self.group_table = self.compute_groups()
        self.index = self.compute_index()

    def compute_groups(self) -> GroupTable:
        """Return the table of all groups."""
        raise NotImplementedError

    def compute_index(self) -> FleetIndex:
        """Return the index of all records as they are now."""
        raise NotImplementedError


@dataclass(slots=True)
class State(_Indexed):
    """State of the core, whole; each field is plain data, so that it can be written down."""

    term: int = 0
    settings: Settings = field(default_factory=Settings)
    # By their names, groups of nodes for which operators have set something of their own.
    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    # By their ids; and for each name, the id of the newest job that has begun under it. Those that
    # wait to begin may do so in another order than they came, so the jobs do not tell it.
    jobs: dict[str, JobRecord] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    # The highest number in the ids of jobs that are kept no more.
    forgotten_through: int = 0
    # Launchers that ask to take part in a job, and those that are told that theirs is over; none
    # between two events.
    joining: list[Reported[LauncherJoined]] = field(default_factory=list)
    orphaned: list[OrphanedLauncher] = field(default_factory=list)
    # Highest sequence that was taken of each agent's outbox.
    outboxes: dict[str, int] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)
    # Node, name of a job, or "fleet" to the reason of the pause.
    paused: dict[str, str] = field(default_factory=dict)
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    # By "node/kind/user", and of orders by "node/orders/kind".
    rejected_records: dict[str, RejectedRecords] = field(default_factory=dict)
    # Why the controller acts on nothing; empty while it does.
    halted: str = ""
    recovering: bool = False
    # The cluster of this journal: agents of another one are refused.
    cluster_id: str = ""
    # While a journal without agents is rebuilt: clusters, and the nodes whose agents name them.
    clusters_seen: dict[str, list[str]] = field(default_factory=dict)
    highest_term_seen: int = 0
    # Newest generation that agents have seen under each name of a job.
    generations_seen: dict[str, SeenGeneration] = field(default_factory=dict)
    # By its name, a job that the journal had lost and agents told of while it was rebuilt.
    lost_jobs: dict[str, LostJob] = field(default_factory=dict)
    # By the ids of jobs that are not known here, what agents say of their ends; those that were
    # heard of last are the last.
    lost_ends: dict[str, LostEnd] = field(default_factory=dict)
    # By the name of a job, where its newest generation ran when the journal was rebuilt that had
    # lost it; until the next one is planned. And until when agents may still come back that the
    # newest start of this controller, or the end of a recovery, has cut off.
    named_ranks: dict[str, NamedRanks] = field(default_factory=dict)
    returns_until_ns: int = 0
    # By "node/outbox".
    refused_agents: dict[str, RefusedAgent] = field(default_factory=dict)
    # Outboxes of agents that were welcomed in this term and have no node now: it was removed, or it
    # has another agent.
    former_agents: list[str] = field(default_factory=list)
    # Rounds of questions in a row that nobody answered, about whatever node.
    mute_rounds: int = 0
    # When the controller's loop has stood still lately.
    stalls_ns: list[int] = field(default_factory=list)
    # Until when it waits for agents after a start, of time in which it listens: a start within that
    # goes on with it.
    grace_until_ns: int = 0
    # The machine of this controller.
    machine: str = ""
    # The newest roll call.
    roll: RollCall | None = None
    outage: Outage | None = None
    # Nodes that are to be tested beside others when nothing runs there.
    pair_wanted: list[str] = field(default_factory=list)
    # When automation has isolated working nodes, and stopped jobs that still stepped, by their ids;
    # within the last hour.
    isolations_ns: list[int] = field(default_factory=list)
    # The same isolations by what has budgets of its own that the nodes were in.
    isolations_in: dict[str, list[int]] = field(default_factory=dict)
    job_stops_ns: dict[str, list[int]] = field(default_factory=dict)
    # For what nodes were isolated or would have been; those that are over, in that order.
    judged: list[JudgedIsolation] = field(default_factory=list)
    # Maintenance windows by their ids; how many were ordered so far, so that no id comes twice.
    windows: dict[str, Window] = field(default_factory=dict)
    windows_ordered: int = 0
    # By their ids, what broke: today all are of jobs.
    incidents: dict[str, JobIncident] = field(default_factory=dict)
    # Who has paused all drivers and why, and since when; "" while they are not.
    drivers_paused: str = ""
    drivers_paused_ns: int = 0
    # The newest days of nodes that have been removed since, all together, oldest first.
    removed_days: list[FleetDay] = field(default_factory=list)
    # Isolation drivers by name.
    drivers: dict[str, DriverRecord] = field(default_factory=dict)
    # Tokens by which nodes join, and the certificates that were signed here.
    enrolment: Enrolment = field(default_factory=Enrolment)
    # Events that were taken: the number of the newest in the journal, less those that say no news.
    event_count: int = 0

    def compute_index(self) -> FleetIndex:
        """Return the index of all nodes and jobs as their records are now."""
        return FleetIndex.of(self.nodes.values(), self.jobs.values(), self.filing_basis())

    def compute_groups(self) -> GroupTable:
        """Return the table of all groups."""
        return GroupTable.of(self.groups)

    def filing_basis(self) -> FilingBasis:
        """Return what nodes are filed by besides their own records."""
        return FilingBasis(
            self.settings, self.machine, self.cluster_id, self.group_table, self.drivers
        )

    def policy_of(self, name: str) -> NodePolicy:
        """Return what operators have set for a node."""
        return self.filing_basis().policy_of(name, self.index.groups_of(name))

    def mode_of(self, node: NodeRecord, condition: str, most: Mode = Mode.ENFORCE) -> Mode:
        """Return how far automation may go for a condition on a node (see NodePolicy)."""
        if not self.group_table.groups:
            return self.settings.mode_of(condition, most)
        return self.policy_of(node.name).mode_of(condition, most)

    def job(self, key: str) -> JobRecord | None:
        """Return the job of an id, or the newest one that has begun under a name."""
        return self.jobs.get(key) or self.jobs.get(self.names.get(key, ""))

    def newest(self, name: str) -> JobRecord:
        """Return the newest job that has begun under a name. Raises KeyError."""
        return self.jobs[self.names[name]]

    def job_of_lineage(self, lineage_id: str) -> JobRecord | None:
        """Return the newest job of a lineage that has begun: what is left of it is that job's."""
        name = lineage_id.rpartition("-")[0]
        known = (self.jobs[job_id] for job_id in reversed(self.index.ids_of_name.get(name, ())))
        return next((job for job in known if job.lineage_id == lineage_id and not job.after), None)

    def is_current(self, job: JobRecord) -> bool:
        """Return whether no other job has begun under the name since."""
        return self.names.get(job.name) == job.id

    def newest_jobs(self) -> Iterator[JobRecord]:
        """Yield the newest job that has begun under each name."""
        return (self.jobs[job_id] for job_id in self.names.values())


def current_name(state: State, name: str) -> str:
    """Return the name of the node that people mean by one: it may have another name by now."""
    node = state.nodes.get(name)
    return (
        node.identity.renamed_to
        if node is not None and node.identity.renamed_to in state.nodes
        else name
    )


def forget_away(state: State, name: str) -> None:
    """Count an agent no more among those that are away together."""
    if state.outage is not None:
        keep_listed(state.outage.nodes, name, listed=False)


def doubtful_members(state: State, job: JobRecord) -> list[str]:
    """Return the members of a job that are doubtful, and on which processes of it may be left."""
    members, stopped = job.generation.members, job.generation.stopped
    return [name for name in state.index.doubtful if name in members and name not in stopped]


def jobs_of_name(state: State, name: str) -> list[JobRecord]:
    """Return the jobs that are kept of a name, in the order in which they came."""
    return [state.jobs[job_id] for job_id in state.index.ids_of_name.get(name, ())]


def add_job(state: State, job: JobRecord) -> None:
    """Keep a new job."""
    state.jobs[job.id] = job
    state.index.add_job(job)


def remove_job(state: State, job: JobRecord) -> None:
    """Keep a job no more."""
    number = number_of_job(job.id, job.name) or 0
    if number <= state.event_count:  # not one that another journal has given
        state.forgotten_through = max(state.forgotten_through, number)
    del state.jobs[job.id]
    state.index.remove_job(job)


def note_node(state: State, node: str, job: JobRecord) -> None:
    """Remember that a node has to do with a job; jobs that it has left are forgotten."""
    record = state.nodes[node]
    known = [one.id for one in jobs_involving(state, record) if one.id != job.id]
    record.jobs.ids = [*known, job.id]


def jobs_involving(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node takes part in, waits for, or may hold some state of."""
    name, known = (
        node.name,
        [state.jobs[job_id] for job_id in node.jobs.ids if job_id in state.jobs],
    )
    return [
        job
        for job in known
        if name in job.launchers or name in job.generation.members or name in job.lineage.holders
    ]


def jobs_of_node(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node is a member of, or waits to be."""
    name, known = (
        node.name,
        [state.jobs[job_id] for job_id in node.jobs.ids if job_id in state.jobs],
    )
    return [job for job in known if name in job.launchers or name in job.generation.members]
