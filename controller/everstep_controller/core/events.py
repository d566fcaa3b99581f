"""What the core is told. Each event is journaled before the core sees it.

``at_ns`` fields are on the controller's timeline and may lie before the event's own time: they say
when the thing happened, the journal says when it was learned.
"""

from dataclasses import dataclass, field

from everstep_common.findings import Finding, FindingKey
from everstep_controller.core.facts import (
    DataRange,
    InjectionState,
    Inventory,
    JobOnNode,
    Origin,
    Phase,
    Settings,
    ShardSource,
    Storage,
    StoredStep,
)

# --- the controller itself -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller process begins; the term grows by one."""

    version: str


@dataclass(frozen=True, slots=True)
class SettingsApplied:
    """The configuration that holds from now on."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that the core set came due."""

    timer: str


@dataclass(frozen=True, slots=True)
class EventRejected:
    """An event made the core raise; the state is what it was before it."""

    sequence: int
    kind: str
    error: str
    node: str
    job: str


@dataclass(frozen=True, slots=True)
class RecoveryBegun:
    """An operator ordered to rebuild what the journal lost from what the agents know."""

    operator: str


# --- nodes ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConnected:
    """An agent opened its stream and said Hello."""

    node: str
    boot_id: str
    agent_version: str
    outbox: str
    highest_term: int
    host: str
    domain: str = ""
    bulk_address: str = ""
    liveness_address: str = ""
    inventory: Inventory = field(default_factory=Inventory)
    jobs: tuple[JobOnNode, ...] = ()
    open_findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDisconnected:
    """An agent's stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PeerReported:
    """A node says that a peer went silent, or is heard again."""

    node: str
    peer: str
    silent: bool


@dataclass(frozen=True, slots=True)
class PeerJudged:
    """A node answers whether a peer is alive."""

    node: str
    peer: str
    confirm_id: str
    alive: bool


@dataclass(frozen=True, slots=True)
class FindingRaised:
    """A node reports a finding."""

    origin: Origin
    finding: Finding
    at_ns: int


@dataclass(frozen=True, slots=True)
class FindingCleared:
    """A node reports the healthy counterpart of a finding."""

    origin: Origin
    key: FindingKey
    evidence: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """A node answers a RunCheck order."""

    origin: Origin
    order_id: str
    passed: bool
    message: str


# --- operators -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorIsolated:
    """An operator claims a node."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorReleased:
    """An operator gives a node back and says that it is good again."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorDrained:
    """An operator wants no new ranks on a node, and those there moved at a step boundary."""

    node: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOrdered:
    """An operator will work on nodes for a while."""

    nodes: tuple[str, ...]
    begin_ns: int
    end_ns: int
    operator: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceCancelled:
    """An operator will not work on nodes, or has finished before the time."""

    window: str
    operator: str


@dataclass(frozen=True, slots=True)
class RestartOrdered:
    """An operator wants a job restarted after a step; None leaves the step to the controller."""

    job: str
    operator: str
    reason: str
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class AutomationPaused:
    """No automatic decision for this node or job; "fleet" for everything."""

    subject: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class AutomationResumed:
    """Automation goes on."""

    subject: str
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionOrdered:
    """An operator wants a fault made on a node, for a while."""

    node: str
    spec: str
    duration_ns: int
    operator: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InjectionCleared:
    """An operator ends an injection, or all of a node for an empty id."""

    node: str
    injection: str
    operator: str


@dataclass(frozen=True, slots=True)
class OperatorForgotJob:
    """An operator has the memory dropped that is kept of a job that has ended."""

    job: str
    operator: str


@dataclass(frozen=True, slots=True)
class InjectionChanged:
    """A node says what became of an injection."""

    origin: Origin
    injection: str
    state: InjectionState
    message: str


# --- jobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherJoined:
    """A launcher asks to take part in a job."""

    origin: Origin
    job: str
    uid: int
    token_sha256: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    free_port: int
    running_generation: int = 0
    at_ns: int = 0
    storage: Storage | None = None
    # The step in that folder that a new job continues from.
    latest: StoredStep | None = None
    # Fewest and most steps from one snapshot to the next; 0 leaves it to the controller.
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
    # Newest generation that the folder has seen; one that is not newer is refused there.
    stored_generation: int = 0
    # Its user wants to begin anew.
    fresh: bool = False
    # Data that the generation that it has running leaves out.
    skipped: tuple[DataRange, ...] = ()


@dataclass(frozen=True, slots=True)
class LauncherLeft:
    """A launcher and all its processes are gone."""

    origin: Origin
    job: str
    reason: str
    by_user: bool
    at_ns: int


@dataclass(frozen=True, slots=True)
class PhaseReached:
    """All ranks of a node reached a phase."""

    origin: Origin
    job: str
    generation: int
    phase: Phase
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited:
    """A training process ended before its generation did."""

    origin: Origin
    job: str
    generation: int
    rank: int
    exit_code: int
    signal: int
    last_line: str
    at_ns: int
    # A kind of `everstep_common.failures`; empty in older journals and of older launchers.
    kind: str = ""
    exception: str = ""
    core_dumped: bool = False
    # Last step that the rank completed, as its agent knows it.
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsked:
    """A rank says that the state after a step is bad, and which data is to be left out."""

    origin: Origin
    job: str
    generation: int
    rank: int
    step: int
    reason: str
    at_ns: int
    skip: DataRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedHere:
    """An agent began a generation itself while the controller was away; see own_restarts."""

    origin: Origin
    job: str
    after_generation: int
    generation: int
    # What it restored, and which generation made that; None and 0 for the beginning.
    step: int | None
    step_generation: int
    decided_ns: int
    at_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class GenerationStopped:
    """No process of the generation is left on the node."""

    origin: Origin
    job: str
    generation: int
    free_port: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """All ranks of the node ended with exit code 0."""

    origin: Origin
    job: str
    generation: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """Consecutive steps that all ranks completed: one row for about a second of steps."""

    job: str
    generation: int
    first_step: int
    # End of each step on the controller's timeline, and how long it stood still for its snapshot.
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    # Newest step that is recoverable without any one node, when the row was made.
    recoverable_step: int | None = None
    snapshots_skipped: int = 0
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRecoverable:
    """A step is recoverable without any one node, and no row of progress has said so.

    Told while steps are slow or none is made, and at once when a planned restart waits for it.
    """

    job: str
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class KeeperChosen:
    """A node that waits as a spare is to keep the replicas of a job that runs on one node."""

    job: str
    node: str


@dataclass(frozen=True, slots=True)
class LayoutLearned:
    """All parts of a generation's state, told when all its ranks have committed a step.

    ``shards`` is what journals before layouts have in their place.
    """

    job: str
    generation: int
    shards: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStepChosen:
    """The catalogue's answer to ChooseRecoveryStep.

    ``step`` is None when the job has no snapshot; ``lost`` is a sentence when it had some and none
    can be restored.
    """

    job: str
    generation: int
    step: int | None
    sources: tuple[ShardSource, ...] = ()
    lost: str = ""
    reason: str = ""
    # The generation that made the step; 0 in older journals, whose sources say it.
    step_generation: int = 0
    # What there is of it in storage.
    stored: StoredStep | None = None
    # The best tier that has all of it; empty in older journals.
    tier: str = ""


@dataclass(frozen=True, slots=True)
class BreakpointReached:
    """The last step of a job that shall end is in storage, or will not come there."""

    job: str
    generation: int
    message: str


Event = (
    ControllerStarted
    | SettingsApplied
    | TimerDue
    | EventRejected
    | RecoveryBegun
    | NodeConnected
    | NodeDisconnected
    | PeerReported
    | PeerJudged
    | FindingRaised
    | FindingCleared
    | CheckFinished
    | OperatorIsolated
    | OperatorReleased
    | OperatorDrained
    | MaintenanceOrdered
    | MaintenanceCancelled
    | RestartOrdered
    | AutomationPaused
    | AutomationResumed
    | InjectionOrdered
    | InjectionCleared
    | OperatorForgotJob
    | InjectionChanged
    | LauncherJoined
    | LauncherLeft
    | PhaseReached
    | RankExited
    | RollbackAsked
    | RestartedHere
    | GenerationStopped
    | GenerationFinished
    | JobProgressed
    | StepRecoverable
    | KeeperChosen
    | LayoutLearned
    | RecoveryStepChosen
    | BreakpointReached
)
