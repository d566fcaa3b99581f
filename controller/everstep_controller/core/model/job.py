"""Job record: what is known of one job."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType

from everstep_common.orders import ShardSource
from everstep_common.reports import (
    DataRange,
    EndedJob,
    Phase,
    RestartedHere,
    StepPause,
    Storage,
    StoredStep,
)
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.agents import AdoptedGeneration
from everstep_controller.core.model.hang import Hang, PastHang, StillNode, UsualStand
from everstep_controller.core.model.incident import (
    AskedRollback,
    Death,
    Incident,
    Judgement,
    WaitedFor,
)
from everstep_controller.core.model.node import Reported
from everstep_controller.core.model.rank_reports import RankReports
from everstep_controller.core.model.slowness import JobSlowness
from everstep_controller.core.model.snapshots import (
    BranchPoint,
    Cadence,
    Predecessor,
    RecoveryStepChosen,
    SnapshotCosts,
    StepKey,
)
from everstep_controller.core.model.timers import TimerKind


class JobState(Enum):
    """State of a job in its lifecycle."""

    # By identity: tables and sets are searched by it at each event; Enum hashes in Python.
    __hash__ = object.__hash__

    FORMING = "forming"
    REPLANNING = "replanning"
    WAITING_CAPACITY = "waiting_capacity"
    # Its ranks died of what is outside of it, again: it waits before the next attempt.
    BACKING_OFF = "backing_off"
    # Nobody can give back its state now; the question is asked again.
    WAITING_STATE = "waiting_state"
    STARTING = "starting"
    RESTORING = "restoring"
    WARMING = "warming"
    RUNNING = "running"
    STALLED = "stalled"
    STOPPING = "stopping"
    # It only waits for its last step to be in storage.
    CLOSING = "closing"
    ENDED = "ended"


class Outcome(StrEnum):
    """Outcome of a job that has ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    # Somebody had it end before it was done.
    CANCELLED = "cancelled"
    # Its launchers were gone, and its user started it once more.
    REPLACED = "replaced"


class Cause(StrEnum):
    """Cause of a generation's end, or of an incident."""

    # Ranks died of themselves; "collective": only of the loss of others.
    COLLECTIVE = "collective"
    PROCESS = "process"
    # No rank died, and none made steps.
    STALLED = "stalled"
    # A rank called its state bad.
    ROLLBACK = "rollback"
    LAUNCHER = "launcher"
    # The job's user, or a scheduler, sent its launchers away.
    USER = "user"
    # Its node was isolated for what it says of itself.
    FINDING = "finding"
    # An operator wants a restart of the job, or has isolated its node.
    OPERATOR = "operator"
    # Its node is drained, by an operator's order or for a maintenance window; or it is left.
    DRAIN = "drain"
    MAINTENANCE = "maintenance"
    GROWTH = "growth"
    # Its node was lost.
    NODE = "node"


class PlanKind(StrEnum):
    """Kind of recovery plan: how a job goes on after an incident."""

    FIRST = "first"
    IN_PLACE = "in_place"
    SPARE = "spare"
    REFORM = "reform"
    WAITED = "waited"


class PlannedKind(StrEnum):
    """Reason for which a running job is to be restarted on purpose, or stopped for good."""

    RESTART = "restart"
    STOP = "stop"
    DRAIN = "drain"
    GROWTH = "growth"
    # The agent of a member stays away, and a spare takes its place.
    MOVE = "move"

    @classmethod
    def _missing_(cls, value: object) -> "PlannedKind | None":
        # What a user wants to end was a kind of its own in journals from before 2026-11-24.
        return cls.STOP if value == "end" else None


@dataclass(slots=True)
class Launcher:
    """A launcher that offers its node to a job."""

    free_port: int
    # Processes of this generation may still run there; it takes no new ranks before they are gone.
    stale_generation: int = 0
    # Why its node takes no ranks, as reported to it last; empty: it takes some.
    kept: str = ""
    # The newest generation of which the kernel holds processes there that were killed, or the
    # driver memory of a device.
    holds_generation: int = 0


@dataclass(slots=True, kw_only=True)
class JobIncident(Incident):
    """Faults of a job that have one cause, and what was done."""

    # A cause of a kind is a member of that kind's enum of strings.
    cause: Cause  # pyright: ignore[reportIncompatibleVariableOverride]
    step_before: int | None
    # The newest generation that one of its faults has ended; 0 where an older version did not say.
    generation: int = 0
    # Its nodes, as Slurm folds their names; "": an older version did not say.
    members: str = ""
    plan: PlanKind | None = None
    step_restored: int | None = None
    # Without a snapshot: the step with which the script went on by itself; None until it is seen.
    step_resumed: int | None = None
    # What was made of how its newest generation ended.
    verdict: str = ""
    # The ranks that died first, and what the kernel holds of those that were killed.
    deaths: list[Death] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Planned:
    """Planned restart or stop: what is to become of a running job at a step boundary."""

    kind: PlannedKind
    by: str
    reason: str
    generation: int
    ordered_ns: int
    # The last step before it; None until it is chosen.
    after_step: int | None = None
    # Whether an operator chose that step.
    named: bool = False
    # The node that a move leaves; "" for all else.
    leaves: str = ""

    @property
    def is_of_operator(self) -> bool:
        """Whether an operator ordered it, and may take it back."""
        return self.kind in (PlannedKind.RESTART, PlannedKind.STOP)

    @property
    def is_at_any_step(self) -> bool:
        """Whether an operator wants it at whatever step comes next."""
        return self.is_of_operator and not self.named


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Specification of a job: what was asked for at its start; it never changes."""

    uid: int
    token_sha256: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int = 1
    # It may go on with fewer nodes than it had.
    reform: bool = False
    restarts_max: int = 3
    # So many nodes hold one copy of the model together: the job runs on a multiple of them.
    replica_nodes: int = 1
    # What its launchers start, in words; "": they are of a version that does not say so.
    program: str = ""
    storage: Storage | None = None
    # Fewest and most steps from one snapshot to the next; 0 leaves it to the controller.
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
    # Whose time it is, as its scheduler or its user says; "": nobody does. A job that is submitted
    # to another queue is the same job.
    queue: str = field(default="", compare=False)
    account: str = field(default="", compare=False)


class Members(list[str]):
    """Members of a generation in rank order, which never change: no search finds one's place."""

    __slots__ = ("_places",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._places = {name: place for place, name in enumerate(self)}

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def place(self, name: str) -> int:
        """Return which member a node is, counted from 0. Raises KeyError."""
        return self._places[name]


class MemberPhases(dict[str, Phase]):
    """How far each member has come. They are counted, for thousands may tell of each phase."""

    __slots__ = ("_counts",)

    def __init__(self, phases: Mapping[str, Phase] = MappingProxyType({})) -> None:
        super().__init__(phases)
        self._counts = Counter(self.values())

    def __setitem__(self, node: str, phase: Phase) -> None:
        """Enter how far a member has come."""
        if (left := self.get(node)) is not None:
            self._counts[left] -= 1
        self._counts[phase] += 1
        super().__setitem__(node, phase)

    def __reduce__(self) -> tuple[type["MemberPhases"], tuple[dict[str, Phase]]]:
        """Have a copy count anew."""
        return MemberPhases, (dict(self),)

    def count(self, phase: Phase) -> int:
        """Return how many members have come so far and no further."""
        return self._counts[phase]


@dataclass(frozen=True, slots=True)
class StepsBehind:
    """Steps that members of a stopped generation made where they did not hear of its stop."""

    first_step: int
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    recoverable_step: int | None
    snapshots_skipped: int
    pauses: tuple[StepPause, ...] = ()


@dataclass(slots=True)
class UnsavedSteps:
    """Steps of a generation after the recoverable one, which stands still."""

    # Since when a newer one should have become recoverable; 0: none should have.
    since_ns: int = 0
    # People were told of it.
    told: bool = False
    # The step that ended it while the agent of a member was away, and what people read of a move of
    # its ranks; "": none is away.
    saved_step: int | None = None
    move: str = ""


@dataclass(slots=True)
class Generation:
    """One incarnation of a job's processes; replaced whole when the next one is planned."""

    number: int = 0
    # The nodes that take part, in rank order.
    members: Members = field(default_factory=Members)
    # The newest phase of each member; when the latest of those that have reached a phase did so.
    phases: MemberPhases = field(default_factory=MemberPhases)
    reached_ns: dict[Phase, int] = field(default_factory=dict)
    # Members on which no process of it is left, and those whose ranks have all ended well.
    # Keys of dictionaries: unlike a set they are written down in the same order again.
    stopped: dict[str, bool] = field(default_factory=dict)
    finished: dict[str, bool] = field(default_factory=dict)
    # Of the former, those that were only taken for stopped, because nothing of them was heard; the
    # steps that they have told of since; and that nobody waits for the others any more.
    fenced: dict[str, bool] = field(default_factory=dict)
    made_behind: list[StepsBehind] = field(default_factory=list)
    given_up: bool = False
    # Why nobody could give back the state that it begins from: it waits, and the same question is
    # asked again until somebody can.
    unreachable: str = ""
    # Nodes with copies of that state that were connected when the catalogue was asked last.
    asked_of: list[str] = field(default_factory=list)
    # How often it was asked since it was last time to ask.
    asks: int = 0
    # Nobody waits any more for those that do not tell what they hold.
    holdings_overdue: bool = False
    # When its members were told to start; 0: an older version did not note it.
    began_ns: int = 0
    # Where its rank 0 listens, and why it was started.
    master_address: str = ""
    master_port: int = 0
    start_reason: str = ""
    # The step that it restores, the copies of it, and what storage has of it.
    restore_step: int | None = None
    sources: tuple[ShardSource, ...] = ()
    restore_stored: StoredStep | None = None
    # The strongest cause of its end; None while it runs.
    cause: Cause | None = None
    # What its ranks called bad, the earliest state of it; None: nothing.
    asked_rollback: AskedRollback | None = None
    # Numbers after its own that the only member may use while the controller is away.
    own_restarts: int = 0
    # An operator ordered the restart, so the script may differ from the one before.
    renew: bool = False
    # Members whose ranks stand still, as they say.
    still: dict[str, StillNode] = field(default_factory=dict)
    # The place of a member that did not when they were looked at; 0: none is known.
    moving_place: int = 0
    # What is to be done about the hang for which it was stopped; None where nothing was judged.
    hang_judgement: Judgement | None = None
    # Members were tested beside others when it had stopped: the next plan waited once.
    pair_tested: bool = False
    # Its newest steps are not saved.
    unsaved: UnsavedSteps = field(default_factory=UnsavedSteps)
    # What its ranks have said of themselves, as far as somebody keeps it.
    rank_reports: RankReports = field(default_factory=RankReports)


@dataclass(slots=True)
class AwaitedAnswers:
    """Wait of a job for its nodes, in its present state; replaced whole when it enters another."""

    since_ns: int = 0
    # When one of them told something that it waits for.
    heard_ns: int = 0
    # When those were asked again that had not answered, how often in a row, and who still has not.
    asked_ns: int = 0
    rounds: int = 0
    silent: dict[str, bool] = field(default_factory=dict)
    # People were told of it.
    told: bool = False


@dataclass(slots=True)
class Lineage:
    """Lineage of a job's state: the states it may go back to, and those it continues."""

    branch: list[BranchPoint] = field(default_factory=list)
    # Nodes that may hold copies of the job's state, and the last generation they were started in.
    holders: dict[str, int] = field(default_factory=dict)
    # The state that the newest generation that was started restored.
    restored: StepKey | None = None
    last_step: int | None = None
    recoverable_step: int | None = None
    # The generation that it goes on from, where the journal has lost that; None once it has begun
    # another one.
    adopted: AdoptedGeneration | None = None
    # States that a generation was restored from and crashed soon after, one entry a crash.
    crashed_from: list[StepKey] = field(default_factory=list)
    # States that ranks called bad; and the ranges of data that are skipped for it, disjoint and in
    # order.
    spoiled: list[StepKey] = field(default_factory=list)
    skipped: list[DataRange] = field(default_factory=list)
    # The step in storage that the job began with.
    latest: StoredStep | None = None
    # The job whose state this one continues, and a sentence about what it begins with.
    continues: Predecessor | None = None
    # Id of the job with which this lineage began; "" where that is the job itself.
    root: str = ""
    begun: str = ""
    # Its user wants it to start from scratch.
    fresh: bool = False
    # Its user wants it to go on from what another job has in storage.
    continued: bool = False
    # The branch in storage that ends at ``latest``, while it has not begun; and why nobody knows
    # which step there is its newest, though there is something.
    stored_branch: list[BranchPoint] = field(default_factory=list)
    stored_doubt: str = ""
    # A generation of it was started.
    started: bool = False

    @property
    def completed_step(self) -> int | None:
        """Return the newest step that all ranks have completed; its row may come after its copies.

        Whatever can be restored was completed by all of them.
        """
        if self.last_step is None or self.recoverable_step is None:
            return self.last_step
        return max(self.last_step, self.recoverable_step)


@dataclass(slots=True)
class Recovery:
    """Recovery of a job: its incidents, deaths, judgements and restarts."""

    # Ids of its incidents, oldest first; the fleet keeps them (core/fleet/incidents.py).
    incidents: list[str] = field(default_factory=list)
    # How many came before these and are kept no more, and how many of those nobody had planned.
    older_incidents: int = 0
    older_failures: int = 0
    # How ranks of the newest generation that lost some died, those that explain most first.
    deaths: list[Death] = field(default_factory=list)
    # Judgements on how the generations in the newest incident ended.
    judgements: list[Judgement] = field(default_factory=list)
    # Which kind of plan is being carried out; None where the job goes on as it is.
    plan: PlanKind | None = None
    restarts: int = 0
    restarts_without_progress: int = 0
    # Generations without a new step since, in a row, whose end came from outside.
    outside_ends: int = 0
    # A generation has lived for long, or under a journal that is lost: what it names is there.
    got_going: bool = False
    # Hangs for which it was restarted, oldest first; and the places at which it stood still and
    # went on by itself.
    hangs: list[PastHang] = field(default_factory=list)
    usual_stands: list[UsualStand] = field(default_factory=list)
    # How long its ranks took to their first step, at most, once all had their state.
    longest_warmup_ns: int = 0
    # Of the newest generation that ended because ranks gave up waiting, whom they waited for.
    waited_for: WaitedFor | None = None


@dataclass(slots=True)
class Ending:
    """End of a job: why it is to end, and how it ended."""

    # Its user wants its end: on which node that was said and when, and by when all is gone there.
    asked_on: str = ""
    asked_ns: int = 0
    by_ns: int = 0
    # Why it shall end as soon as its processes are gone; empty while it shall go on.
    wanted: str = ""
    # Why it ends, once that is decided: its last step may still be on the way to storage.
    closing: str = ""
    # All its ranks ended well.
    done: bool = False
    succeeded: bool = False
    # It ended well, and its last step did not come to storage.
    unsaved: bool = False
    # It is to end for what it does itself: then it fails, and nobody has cancelled it.
    failed: bool = False
    # Another start of it took its place, for its launchers were gone.
    replaced: bool = False
    # The operator who had its memory dropped, after it had ended; empty while nobody had.
    forgotten_by: str = ""
    # It has ended, and the journal has lost that, by the word of a node's agent, and the highest
    # term which that had seen then; and the newest generation of it that any agent has seen.
    remembered: EndedJob | None = None
    remembered_by: str = ""
    remembered_term: int = 0
    newest_seen: int = 0

    @property
    def leaves_state(self) -> bool:
        """Return whether nodes keep its memory after its end, for the next job of its name."""
        return (not self.succeeded or self.unsaved) and not self.forgotten_by


@dataclass(frozen=True, slots=True)
class JobFault:
    """Fault of a job as it was told: when it happened, why, on which node, and in words."""

    at_ns: int
    cause: Cause
    # Empty where no node is known to be concerned.
    node: str
    message: str
    # The rank that died, where that is the fault.
    death: Death | None = None


@dataclass(slots=True)
class JobNews:
    """News of a job by which nothing has been decided yet; empty between two events."""

    faults: list[JobFault] = field(default_factory=list)
    # Timers of the job that came due.
    due: list[TimerKind] = field(default_factory=list)
    # Where its next generation begins, as the catalogue says; and that the agent of its only member
    # has begun one on its own.
    choice: RecoveryStepChosen | None = None
    restarted: Reported[RestartedHere] | None = None
    # The phase that all members have reached now, and that steps were made.
    phase: Phase | None = None
    stepped: bool = False
    # The first step that was not made before its open incident, and when that ended.
    new_step: int | None = None
    new_step_ns: int = 0
    # Nobody has to wait for its last step any more; why it is not in storage, empty where it is.
    last_step_missed: str | None = None
    # It went on without a snapshot: with which step, and which was the newest that it had made.
    resumed: tuple[int, int] | None = None
    # An operator has its memory dropped.
    forgotten: bool = False
    # Its ranks were looked at while it stands still.
    hang_seen: bool = False


@dataclass(frozen=True, slots=True)
class OrphanedLauncher:
    """A launcher of a job that is over, which its agent has told of and which was not answered."""

    job: str
    job_id: str
    node: str


@dataclass(slots=True)
class JobRecord:
    """Record of one job: its specification, generation, lineage, recovery and ending."""

    # What it is known by to the end of time; and its name, which the next job may have as well.
    id: str
    name: str
    spec: JobSpec
    ledger: Ledger
    state: JobState = JobState.FORMING
    since_ns: int = 0
    reason: str = "waiting for its nodes"
    # The job of its name before it, whose end it waits for before it begins; else empty.
    after: str = ""
    launchers: dict[str, Launcher] = field(default_factory=dict)
    # How many there were when all of them were told last, while it is forming.
    launchers_told: int = 0
    # The newest term in which a launcher joined it that did not name it, or a generation of it was
    # started.
    term: int = 0
    # Numbers below this one another journal may have given to generations of it; 0: none has.
    first_number: int = 0
    generation: Generation = field(default_factory=Generation)
    lineage: Lineage = field(default_factory=Lineage)
    recovery: Recovery = field(default_factory=Recovery)
    ending: Ending = field(default_factory=Ending)
    news: JobNews = field(default_factory=JobNews)
    # The stall that lasts; replaced whole when the job enters another state.
    hang: Hang = field(default_factory=Hang)
    # The slow ranks of the newest verdict.
    slow: JobSlowness = field(default_factory=JobSlowness)
    awaited: AwaitedAnswers = field(default_factory=AwaitedAnswers)
    # Nodes that have counted as gone because their agents did not answer, with the generation that
    # this was about; until they take part again.
    overdue: dict[str, int] = field(default_factory=dict)
    # Which steps are snapshotted, as was decided last, and what the newest of them have cost.
    cadence: Cadence = field(default_factory=Cadence)
    snapshot_costs: SnapshotCosts = field(default_factory=SnapshotCosts)
    snapshots_skipped: int = 0
    # A restart that somebody wants; and for growth, since when nodes wait and when it was last.
    planned: Planned | None = None
    growable_since_ns: int = 0
    grown_ns: int = 0

    def __post_init__(self) -> None:
        """Have the ledger know of how many nodes its time is, where it does not."""
        if not self.ledger.nodes:
            self.ledger.weigh(len(self.generation.members) or self.spec.nodes_min)

    @property
    def created_ns(self) -> int:
        """Return when it was submitted: its time is counted from then on."""
        return self.ledger.started_ns

    @property
    def lineage_id(self) -> str:
        """Return the id of the job with which its lineage began, perhaps its own."""
        return self.lineage.root or self.id

    @property
    def outcome(self) -> Outcome | None:
        """Return how it ended; None before."""
        if self.state is not JobState.ENDED:
            return None
        if self.ending.succeeded:
            return Outcome.SUCCEEDED
        if self.ending.wanted and not self.ending.failed:
            return Outcome.CANCELLED
        return Outcome.REPLACED if self.ending.replaced else Outcome.FAILED

    @property
    def world_size(self) -> int:
        """Return the number of ranks of the current generation."""
        return len(self.generation.members) * self.spec.processes_per_node
