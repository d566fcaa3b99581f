"""Node record: what is known of one node, its hardware, and the records of its agent."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from everstep_common.judging.findings import Finding
from everstep_common.judging.flapping import Flapping
from everstep_common.reports import (
    CheckFinished,
    Inventory,
    RanksWithoutSnapshot,
    Report,
)
from everstep_controller.core.model.agents import AgentIdentity
from everstep_controller.core.model.hang import NodeHang
from everstep_controller.core.model.incident import Strike
from everstep_controller.core.model.injection import NodeInjections
from everstep_controller.core.model.judged import JudgedIsolation
from everstep_controller.core.model.node_days import NodeDays
from everstep_controller.core.model.node_liveness import NodeLiveness, StreamEnds
from everstep_controller.core.model.pair_test import PairRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of an agent's outbox that an event was made from; makes redelivery harmless."""

    node: str
    outbox: str
    sequence: int


R_co = TypeVar("R_co", bound=Report, covariant=True)


@dataclass(frozen=True, slots=True)
class Reported(Generic[R_co]):
    """Event that carries an agent's report; the report's type decides which handler takes it."""

    origin: Origin
    # When it happened.
    at_ns: int
    report: R_co
    # Name of the job that it is about; "": it is about the node.
    job: str = ""
    # When what it tells was seen; 0: when it happened.
    seen_ns: int = 0


# Who may claim a node.
AUTOMATION = "automation"

OPERATOR = "operator"

MAINTENANCE = "maintenance"

# Others, who had a scheduler place no work on the node: never ours to remove.
SCHEDULER = "scheduler"


class NodeState(Enum):
    """Health of a node; isolation is not a state but its claims."""

    # By identity: tables and sets are searched by it at each event; Enum hashes in Python.
    __hash__ = object.__hash__

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


@dataclass(slots=True)
class Claim:
    """Claim on a node: its owner keeps the node from taking ranks."""

    owner: str
    reason: str
    since_ns: int
    # The node was dead when it was claimed, and no budget has allowed the claim since it is back.
    dead: bool = False
    # What runs there leaves at a step boundary, and only if it can go on elsewhere.
    draining: bool = False
    # It leaves soon, even if it cannot go on elsewhere.
    vacate: bool = False
    # The condition for which automation claimed it; "" for other owners, and where none is the
    # cause: nodes that are lost, and claims that a version before 2026-12 made.
    condition: str = ""


class FindingOwner(Enum):
    """Owner of a finding: nobody else's word replaces or clears it."""

    AGENT = "agent"
    # A judge of the controller, by samples; and the core, by its own state.
    CONTROLLER = "controller"
    CORE = "core"


@dataclass(slots=True)
class OpenFinding:
    """A finding that is not cleared yet."""

    finding: Finding
    since_ns: int
    owner: FindingOwner = FindingOwner.CONTROLLER
    # The operator who said that the node is good in spite of it.
    accepted_by: str = ""
    # Its evidence when it was raised, where that has changed since.
    first_evidence: str = ""
    # When it was seen last, as far as its agent has told; 0: as it began.
    seen_ns: int = 0
    # It was told so late that it starts no action before it is seen again.
    late: bool = False

    @property
    def counts_against_node(self) -> bool:
        """Whether it is about the node, and no operator has accepted it.

        One about a job, such as a storage folder that its user named, is its user's to mend, and
        says nothing about what others could do with the node.
        """
        return not self.accepted_by and not self.finding.key.job


@dataclass(slots=True)
class RejectedRecords:
    """Records of one kind and user of a node that could not be used, with the fault of the first.

    Or orders to its agent, which it could not use. ``user`` is a uid; "" where it is not known.
    """

    node: str
    kind: str
    job: str
    error: str
    since_ns: int
    last_ns: int = 0
    count: int = 0
    user: str = ""
    to_agent: bool = False


@dataclass(slots=True)
class SpareCheck:
    """Check of a node that waits as a spare, and what it showed."""

    # It waits as the spare of a running job.
    waits: bool = False
    # The newest check that was ordered, and that it was not answered yet.
    number: int = 0
    asked: bool = False
    # When a check of the node passed last, this one or that of its lifecycle; 0 for never.
    passed_ns: int = 0
    # Why the newest that was answered failed; empty when it passed.
    failed: str = ""


@dataclass(slots=True)
class NodeNews:
    """News of a node that its health has not been judged by yet; empty between two events."""

    # Its agent has connected, and how.
    connected: str = ""
    # Its newest check has ended; or it failed, and another one is due.
    check: CheckFinished | None = None
    check_due: bool = False
    # An operator says that it was repaired.
    repaired: str = ""
    # A finding is over, as the beginning of a sentence.
    cleared: str = ""
    # Another channel of it fell silent; or somebody who was asked has answered.
    silent: bool = False
    evidence: bool = False
    # Who says that it is lost, besides its silence, and why: an operator, or a scheduler.
    told_lost: str = ""
    # Injections that were ordered here, or whose end was.
    injections: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Specification of a node: what its agent said of it in its newest Hello; replaced whole."""

    boot_id: str = ""
    outbox: str = ""
    agent_version: str = ""
    host: str = ""
    domain: str = ""
    # Its machine, as agents name it since 0.1.0.
    machine: str = ""
    bulk_address: str = ""
    liveness_address: str = ""
    inventory: Inventory = field(default_factory=Inventory)


@dataclass(slots=True)
class NodeHealth:
    """Health of a node as far as it was found out: open findings, and its newest check."""

    # By owner, component and condition.
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    # Which of them were raised within the last minute, or are kept open because they come and go.
    flapping: dict[str, Flapping] = field(default_factory=dict)
    checks: int = 0
    # Why its newest check failed, until it is checked again; and how many in a row have failed, and
    # were not answered.
    check_failed: str = ""
    checks_failed: int = 0
    checks_unanswered: int = 0


@dataclass(slots=True)
class Isolation:
    """Who keeps a node from taking ranks, and what keeps automation from doing so."""

    claims: list[Claim] = field(default_factory=list)
    # Why automation wanted to isolate it, when the budget, the mode or a pause forbade it.
    deferred: str = ""
    # Which budget forbids it, and since when; empty where that is something else.
    held_back: str = ""
    held_back_ns: int = 0
    # By condition, for what it is isolated or would be, if that were enforced.
    judged: dict[str, JudgedIsolation] = field(default_factory=dict)


@dataclass(slots=True)
class NodeBlame:
    """What a node is charged with for what became of ranks there."""

    # Why it is to be replaced and checked, until automation may do that.
    reason: str = ""
    # Deaths of ranks here that nothing has explained.
    strikes: list[Strike] = field(default_factory=list)
    # Hangs of jobs that were restarted for them, and whose culprits were all here.
    hangs: list[NodeHang] = field(default_factory=list)


@dataclass(slots=True)
class JobsOfNode:
    """Jobs that a node has to do with."""

    # Of some perhaps no more.
    ids: list[str] = field(default_factory=list)
    # Why launchers here were turned away, by the names of their jobs.
    refusals: dict[str, str] = field(default_factory=dict)
    # By their ids, the jobs of which no snapshot was ever made here, by the word of its agent.
    without_snapshot: dict[str, RanksWithoutSnapshot] = field(default_factory=dict)


@dataclass(slots=True)
class SwapRecord:
    """Swap of a node by a spare: what is planned, and the one that was begun last."""

    # What is done about a finding that foretells a failure, as people were told.
    plan: str = ""
    # When began what automation drains it for, or drained it for last, and when it did; 0: never.
    evidence_since_ns: int = 0
    begun_ns: int = 0


@dataclass(slots=True)
class NodeRecord:
    """Record of one node: its specification, and a value for each subject that decides about it."""

    name: str
    state: NodeState = NodeState.JOINING
    since_ns: int = 0
    reason: str = "not seen yet"
    spec: NodeSpec = field(default_factory=NodeSpec)
    identity: AgentIdentity = field(default_factory=AgentIdentity)
    liveness: NodeLiveness = field(default_factory=NodeLiveness)
    streams: StreamEnds = field(default_factory=StreamEnds)
    health: NodeHealth = field(default_factory=NodeHealth)
    isolation: Isolation = field(default_factory=Isolation)
    blame: NodeBlame = field(default_factory=NodeBlame)
    jobs: JobsOfNode = field(default_factory=JobsOfNode)
    injections: NodeInjections = field(default_factory=NodeInjections)
    swap: SwapRecord = field(default_factory=SwapRecord)
    spare_check: SpareCheck = field(default_factory=SpareCheck)
    pair: PairRecord = field(default_factory=PairRecord)
    days: NodeDays = field(default_factory=NodeDays)
    news: NodeNews = field(default_factory=NodeNews)

    def claim_of(self, owner: str) -> Claim | None:
        """Return the claim of one owner."""
        return next((claim for claim in self.isolation.claims if claim.owner == owner), None)

    @property
    def missed(self) -> bool:
        """Whether its stream has ended, or peers lost sight of it, and nothing is judged yet."""
        return (
            not self.liveness.connected
            or bool(self.liveness.silent_to)
            or self.liveness.confirmation is not None
        )

    @property
    def fit(self) -> bool:
        """Whether the node could take ranks but for its claims."""
        healthy = (NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION)
        return self.liveness.connected and not self.doubtful and self.state in healthy

    @property
    def usable(self) -> bool:
        """Whether the node may take ranks."""
        return self.fit and not self.isolation.claims

    @property
    def draining(self) -> bool:
        """Whether claims keep it from new ranks only, and those that it has may stay a while."""
        claims = self.isolation.claims
        return bool(claims) and all(claim.draining for claim in claims)

    @property
    def vacated(self) -> bool:
        """Whether what runs there has to leave, wherever it can go."""
        return any(claim.vacate for claim in self.isolation.claims)

    @property
    def doubtful(self) -> bool:
        """Whether its agent is away or hangs, and it is not lost: it takes no new ranks."""
        return bool(self.liveness.silence.doubt)

    @property
    def unreachable(self) -> bool:
        """Whether no answer of its agent is to be waited for, nor what its vault has."""
        return self.gone or self.doubtful

    @property
    def gone(self) -> bool:
        """Whether nothing that runs there is to be waited for."""
        return self.liveness.absent or self.state in (NodeState.LOST, NodeState.RETIRED)
