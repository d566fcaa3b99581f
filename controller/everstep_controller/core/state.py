"""What the controller knows and has decided: the value that the journal folds to."""

from dataclasses import dataclass, field
from enum import Enum

from everstep_common.findings import Finding
from everstep_controller.core.deaths import Death, Judgement, Strike
from everstep_controller.core.events import LauncherJoined
from everstep_controller.core.facts import (
    BranchPoint,
    DataRange,
    InjectionState,
    Inventory,
    Past,
    Phase,
    Settings,
    ShardSource,
    StepKey,
    Storage,
    StoredStep,
)
from everstep_controller.core.ledger import Ledger
from everstep_controller.core.windows import Window


class NodeState(Enum):
    """Health of a node; isolation is not a state but its claims."""

    JOINING = "joining"
    VALIDATING = "validating"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    REPAIRING = "repairing"
    PROBATION = "probation"
    LOST = "lost"
    # Somebody works on it: nothing that it does or leaves undone is judged.
    MAINTENANCE = "maintenance"
    RETIRED = "retired"


class JobState(Enum):
    """Where a job is in its life."""

    FORMING = "forming"
    REPLANNING = "replanning"
    WAITING_CAPACITY = "waiting_capacity"
    STARTING = "starting"
    RESTORING = "restoring"
    WARMING = "warming"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


AUTOMATION = "automation"
OPERATOR = "operator"
MAINTENANCE = "maintenance"
FLEET = "fleet"
CONTROLLER = "controller"


@dataclass(slots=True)
class Claim:
    """Somebody keeps a node from taking ranks."""

    owner: str
    reason: str
    since_ns: int
    # The node was dead when it was claimed, so no budget was spent on it.
    dead: bool = False
    # What runs there leaves at a step boundary, and only if it can go on elsewhere.
    draining: bool = False
    # It leaves soon, even if it cannot go on elsewhere.
    vacate: bool = False


@dataclass(slots=True)
class OpenFinding:
    """A finding that is not cleared yet."""

    finding: Finding
    since_ns: int
    # The operator who said that the node is good in spite of it.
    accepted_by: str = ""


@dataclass(slots=True)
class Injection:
    """A fault that an operator ordered on purpose."""

    id: str
    spec: str
    duration_ns: int
    operator: str
    reason: str
    ordered_ns: int
    state: InjectionState = InjectionState.ORDERED
    message: str = ""
    # Its end was ordered.
    clearing: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state in (InjectionState.REFUSED, InjectionState.ENDED)


@dataclass(slots=True)
class Confirmation:
    """Peers were asked whether a silent node is alive."""

    id: str
    asked: list[str]
    verdicts: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class NodeRecord:
    """One node."""

    name: str
    state: NodeState = NodeState.JOINING
    since_ns: int = 0
    reason: str = "not seen yet"
    claims: list[Claim] = field(default_factory=list)
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    connected: bool = False
    # When its stream ended or its peers lost it, whichever was first; 0 while it is heard.
    silent_since_ns: int = 0
    silent_to: list[str] = field(default_factory=list)
    confirmation: Confirmation | None = None
    checks: int = 0
    # Why automation wanted to isolate it, when the budget, the mode or a pause forbade it.
    deferred: str = ""
    boot_id: str = ""
    outbox: str = ""
    # Term in which this controller last answered its Hello.
    welcomed_term: int = 0
    agent_version: str = ""
    host: str = ""
    domain: str = ""
    bulk_address: str = ""
    liveness_address: str = ""
    inventory: Inventory = field(default_factory=Inventory)
    # Deaths of ranks here that nothing has explained.
    strikes: list[Strike] = field(default_factory=list)
    injections: dict[str, Injection] = field(default_factory=dict)
    # How many were ordered so far; none gets the number of another.
    injections_ordered: int = 0
    # Silent while it is in maintenance, so nothing there is waited for.
    absent: bool = False

    def claim_of(self, owner: str) -> Claim | None:
        """Return the claim of one owner."""
        return next((claim for claim in self.claims if claim.owner == owner), None)

    @property
    def missed(self) -> bool:
        """Whether its stream has ended, or peers lost sight of it, and nothing is judged yet."""
        return not self.connected or bool(self.silent_to) or self.confirmation is not None

    @property
    def fit(self) -> bool:
        """Whether the node could take ranks but for its claims."""
        healthy = (NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION)
        return self.connected and self.state in healthy

    @property
    def usable(self) -> bool:
        """Whether the node may take ranks."""
        return self.fit and not self.claims

    @property
    def draining(self) -> bool:
        """Whether claims keep it from new ranks only, and those that it has may stay a while."""
        return bool(self.claims) and all(claim.draining for claim in self.claims)

    @property
    def vacated(self) -> bool:
        """Whether what runs there has to leave, wherever it can go."""
        return any(claim.vacate for claim in self.claims)

    @property
    def gone(self) -> bool:
        """Whether nothing that runs there is to be waited for."""
        return self.absent or self.state in (NodeState.LOST, NodeState.RETIRED)


@dataclass(slots=True)
class Launcher:
    """A launcher that offers its node to a job."""

    free_port: int
    joined_ns: int
    # Processes of this generation may still run there; it takes no new ranks before they are gone.
    stale_generation: int = 0


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
    storage: Storage | None = None
    # The step in storage that the job began with.
    latest: StoredStep | None = None
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
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
    successors: dict[str, LauncherJoined] = field(default_factory=dict)
    # All its ranks ended well; it only waits for its last step to be in storage.
    done: bool = False
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
    growable_since_ns: int = 0
    grown_ns: int = 0

    @property
    def incident(self) -> Incident | None:
        """Return the incident that is not over yet."""
        last = self.incidents[-1] if self.incidents else None
        return last if last is not None and not last.over_ns else None

    @property
    def world_size(self) -> int:
        """Return the number of ranks of the current generation."""
        return len(self.members) * self.processes_per_node


@dataclass(slots=True)
class State:
    """Everything; each field is plain data, so that it can be written down and compared."""

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
    # Why the controller acts on nothing; empty while it does.
    halted: str = ""
    recovering: bool = False
    highest_term_seen: int = 0
    # Highest generation that agents have seen of each job.
    generations_seen: dict[str, int] = field(default_factory=dict)
    self_suspect_since_ns: int = 0
    # Nodes that were being drained after the last event.
    draining: list[str] = field(default_factory=list)
    # Maintenance windows by their ids; how many were ordered so far, so that no id comes twice.
    windows: dict[str, Window] = field(default_factory=dict)
    windows_ordered: int = 0
    event_count: int = 0
