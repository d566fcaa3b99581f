"""Job record: what is known of one job."""

from dataclasses import dataclass, field
from enum import Enum

from everstep_common.reports import DataRange, LauncherJoined, Phase, Storage, StoredStep
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.events import Reported
from everstep_controller.core.model.deaths import Death, Judgement
from everstep_controller.core.model.lineage import BranchPoint, Past, ShardSource, StepKey
from everstep_controller.core.model.snapshot_costs import Cadence, SnapshotCosts


class JobState(Enum):
    """Where a job is in its life."""

    FORMING = "forming"
    REPLANNING = "replanning"
    WAITING_CAPACITY = "waiting_capacity"
    STARTING = "starting"
    RESTORING = "restoring"
    WARMING = "warming"
    RUNNING = "running"
    STALLED = "stalled"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Launcher:
    """A launcher that offers its node to a job."""

    free_port: int
    joined_ns: int
    # Processes of this generation may still run there; it takes no new ranks before they are gone.
    stale_generation: int = 0
    # Why its node takes no ranks, as it was told last; empty: it takes some.
    kept: str = ""
    # The newest generation of which the kernel holds processes there that were killed.
    holds_generation: int = 0


@dataclass(slots=True)
class Incident:
    """Failures of a job that have one cause, and what was done."""

    id: str
    onset_ns: int
    cause: str
    node: str
    message: str
    step_before: int | None
    over_ns: int = 0
    plan: str = ""
    step_restored: int | None = None
    # What was made of how its newest generation ended.
    verdict: str = ""
    # The ranks that died first, and what the kernel holds of those that were killed.
    deaths: list[Death] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Planned:
    """A restart of a running job that somebody wants, at a step boundary."""

    # "restart", "drain" or "growth".
    kind: str
    by: str
    reason: str
    generation: int
    ordered_ns: int
    # The last step before it; None until it is chosen.
    after_step: int | None = None
    # An operator named that step.
    named: bool = False


@dataclass(frozen=True, slots=True)
class EndedJob:
    """How a job ended whose name another one has now."""

    job_id: int
    succeeded: bool
    reason: str


@dataclass(slots=True)
class JobRecord:
    """One job."""

    name: str
    uid: int
    token_sha256: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    created_ns: int
    ledger: Ledger
    state: JobState = JobState.FORMING
    since_ns: int = 0
    reason: str = "waiting for its nodes"
    # So many nodes hold one copy of the model together: the job runs on a multiple of them.
    replica_nodes: int = 1
    # What its launchers start, in words; "": they are of a version that does not say so.
    program: str = ""
    generation: int = 0
    members: list[str] = field(default_factory=list)
    launchers: dict[str, Launcher] = field(default_factory=dict)
    phases: dict[str, Phase] = field(default_factory=dict)
    # Why nobody could give back the state that the planned generation begins from: it waits, and
    # the same question is asked again until somebody can.
    unreachable: str = ""
    # When the last node yet has reached a phase.
    reached_ns: dict[Phase, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    # Nodes that may hold copies of the job's state, and the last generation they were started in.
    holders: dict[str, int] = field(default_factory=dict)
    branch: list[BranchPoint] = field(default_factory=list)
    # Where rank 0 of the current generation listens, and why this generation was started.
    master_address: str = ""
    master_port: int = 0
    start_reason: str = ""
    restore_step: int | None = None
    sources: tuple[ShardSource, ...] = ()
    # The same in storage, and the generation that made it.
    restore_stored: StoredStep | None = None
    restored: StepKey | None = None
    last_step: int | None = None
    recoverable_step: int | None = None
    snapshots_skipped: int = 0
    restarts: int = 0
    restarts_without_progress: int = 0
    plan: str = ""
    incidents: list[Incident] = field(default_factory=list)
    # Why the job shall end as soon as its processes are gone; empty while it shall go on.
    ending: str = ""
    # Why it ends, while its last step is still brought to storage, and whether that is over.
    closing: str = ""
    breakpoint_over: bool = False
    succeeded: bool = False
    # It ended well, and its last step did not come to storage.
    unsaved: bool = False
    storage: Storage | None = None
    # The step in storage that the job began with.
    latest: StoredStep | None = None
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
    # Which steps are snapshotted, as was decided last, and what the newest of them have cost.
    cadence: Cadence = field(default_factory=Cadence)
    snapshot_costs: SnapshotCosts = field(default_factory=SnapshotCosts)
    # The strongest cause of the current generation's end; empty while it runs.
    cause: str = ""
    # States that a generation was restored from and crashed soon after, one entry a crash.
    crashed_from: list[StepKey] = field(default_factory=list)
    # States that ranks said are bad, and data that is left out for it, in order and apart.
    spoiled: list[StepKey] = field(default_factory=list)
    skipped: list[DataRange] = field(default_factory=list)
    # Newest generation whose end was looked at for that.
    judged_generation: int = 0
    # How ranks of the current generation died, those that explain most first.
    deaths: list[Death] = field(default_factory=list)
    # What was made of the ends of generations in the newest incident.
    judgements: list[Judgement] = field(default_factory=list)
    # The operator who had its memory dropped, after it had ended; empty while nobody had.
    forgotten_by: str = ""
    # By their nodes, launchers that have come while it ends, and begin the next job of the name.
    successors: dict[str, Reported[LauncherJoined]] = field(default_factory=dict)
    # All its ranks ended well; it only waits for its last step to be in storage.
    done: bool = False
    # Tells it from the jobs of its name before and after it; and how those before have ended.
    job_id: int = 0
    ends_before: list[EndedJob] = field(default_factory=list)
    # Its user wants it to begin anew.
    fresh: bool = False
    # Numbers after the generation's own that the only member may use while the controller is away.
    own_restarts: int = 0
    # The job before it under this name that it goes on from, and a sentence about that.
    past: Past | None = None
    begun: str = ""
    # What nodes hold of this generation and older ones is of another job, which had the name.
    foreign_generation: int = 0
    # A restart that somebody wants; and for growth, since when nodes wait and when it was last.
    planned: Planned | None = None
    # Somebody had the current generation started: its code may be another than that before.
    renew: bool = False
    growable_since_ns: int = 0
    grown_ns: int = 0

    @property
    def incident(self) -> Incident | None:
        """Return the incident that is not over yet."""
        last = self.incidents[-1] if self.incidents else None
        return last if last is not None and not last.over_ns else None

    @property
    def completed_step(self) -> int | None:
        """Return the newest step that all ranks have completed; its row may come after its copies.

        Whatever can be restored was completed by all of them.
        """
        if self.last_step is None or self.recoverable_step is None:
            return self.last_step
        return max(self.last_step, self.recoverable_step)

    @property
    def leaves_state(self) -> bool:
        """Return whether nodes keep its memory after its end, for the next job of its name."""
        return (not self.succeeded or self.unsaved) and not self.forgotten_by

    @property
    def world_size(self) -> int:
        """Return the number of ranks of the current generation."""
        return len(self.members) * self.processes_per_node
