"""Node record: what is known of one node, its hardware, and the records of its agent."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from everstep_common.judging.findings import Finding
from everstep_common.judging.flapping import Flapping
from everstep_common.reports import (
    CheckFinished,
    InjectionState,
    Inventory,
    RanksWithoutSnapshot,
    Report,
)
from everstep_controller.core.model.agents import Contender
from everstep_controller.core.model.hang import NodeHang
from everstep_controller.core.model.incident import Strike
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


@dataclass(slots=True)
class Confirmation:
    """Round of questions about a silent node: who was asked, and whether each has got an answer.

    Its agent is asked itself as well, by a ping of the same id on its stream.
    """

    id: str
    asked: list[str]
    asked_ns: int
    verdicts: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Silence:
    """Evidence of one silence of a node, from its first missed sign to the agent's next word."""

    # When the agent answered peers last, and the kernel, and what that said.
    heard_ns: int = 0
    kernel_ns: int = 0
    kernel_said: str = ""
    # Peers that were asked since then and got nothing.
    denied: list[str] = field(default_factory=list)
    # When the first round was asked in which they got nothing.
    denied_since_ns: int = 0
    # Who watched the node when it fell silent; and those of them that have told so, with the time
    # when each had heard it last.
    watchers: list[str] = field(default_factory=list)
    unheard: dict[str, int] = field(default_factory=dict)
    # The first round of questions is over.
    asked: bool = False
    # Why the agent ended, where it has said so.
    leaving: str = ""
    # Until when the controller, which has just started, waits for the agent.
    expected_until_ns: int = 0
    # Why the controller takes its own word for no loss, and when that held last; "": it does.
    held: str = ""
    held_ns: int = 0
    # Why the node is doubtful, and since when; empty while it is not.
    doubt: str = ""
    doubted_ns: int = 0


@dataclass(slots=True)
class NodeRecord:
    """Record of one node: health, claims, findings, hardware, and what it was asked."""

    name: str
    state: NodeState = NodeState.JOINING
    since_ns: int = 0
    reason: str = "not seen yet"
    claims: list[Claim] = field(default_factory=list)
    # By owner, component and condition.
    findings: dict[str, OpenFinding] = field(default_factory=dict)
    # Which of them were raised within the last minute, or are kept open because they come and go.
    flapping: dict[str, Flapping] = field(default_factory=dict)
    connected: bool = False
    # When its stream ended or its peers lost it, whichever was first; 0 while it is heard.
    silent_since_ns: int = 0
    # When its agent answered last on its stream to a ping.
    answered_ns: int = 0
    # When its streams have ended lately, and since when they do so again and again; 0: they do not.
    stream_ends_ns: list[int] = field(default_factory=list)
    flaps_since_ns: int = 0
    # The last message with which the controller could not go on; "" where none is known.
    stream_end_reason: str = ""
    # Since when it answers there, and peers do not hear it over UDP.
    blocked_since_ns: int = 0
    # Peers that watch it over UDP and do not hear it.
    silent_to: list[str] = field(default_factory=list)
    silence: Silence = field(default_factory=Silence)
    confirmation: Confirmation | None = None
    # Silent nodes that it was asked about, and has not answered.
    questions: list[str] = field(default_factory=list)
    news: NodeNews = field(default_factory=NodeNews)
    checks: int = 0
    # Why its newest check failed, until it is checked again; and how many in a row have failed, and
    # were not answered.
    check_failed: str = ""
    checks_failed: int = 0
    checks_unanswered: int = 0
    # Why ranks that died there have it replaced and checked, until automation may do that.
    blamed: str = ""
    # Why automation wanted to isolate it, when the budget, the mode or a pause forbade it.
    deferred: str = ""
    # Which budget forbids it, and since when; empty where that is something else.
    held_back: str = ""
    held_back_ns: int = 0
    boot_id: str = ""
    outbox: str = ""
    # Where its agent's stream comes from: a host; and its machine, as agents name it since 0.1.0.
    address: str = ""
    machine: str = ""
    # Another agent that asks for its name, and the outbox of one that may have it.
    contender: Contender | None = None
    successor: str = ""
    # Term in which this controller last answered its Hello.
    welcomed_term: int = 0
    # By their ids, the jobs of which no snapshot was ever made here, by the word of its agent.
    without_snapshot: dict[str, RanksWithoutSnapshot] = field(default_factory=dict)
    agent_version: str = ""
    host: str = ""
    domain: str = ""
    bulk_address: str = ""
    liveness_address: str = ""
    inventory: Inventory = field(default_factory=Inventory)
    # Deaths of ranks here that nothing has explained.
    strikes: list[Strike] = field(default_factory=list)
    # Hangs of jobs that were restarted for them, and whose culprits were all here.
    hangs: list[NodeHang] = field(default_factory=list)
    # Ids of the jobs that it has to do with; of some perhaps no more.
    jobs: list[str] = field(default_factory=list)
    # Why launchers here were turned away, by the names of their jobs.
    refusals: dict[str, str] = field(default_factory=dict)
    injections: dict[str, Injection] = field(default_factory=dict)
    # Number of injections ordered so far, so that no two get the same id.
    injections_ordered: int = 0
    # Silent while it is in maintenance, so nothing there is waited for.
    absent: bool = False
    # The name under which its agent came back; "" for a node that is known by its own.
    renamed_to: str = ""
    # Who has said of a lost node that it is lost; "": only that nothing of it answered.
    lost_by: str = ""
    # What is done about a finding that foretells a failure, as people were told.
    swap_plan: str = ""
    # When began what automation drains it for, or drained it for last, and when it did; 0: never.
    swapped_for_ns: int = 0
    swap_begun_ns: int = 0
    spare_check: SpareCheck = field(default_factory=SpareCheck)
    pair: PairRecord = field(default_factory=PairRecord)

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
        return self.connected and not self.doubtful and self.state in healthy

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
    def doubtful(self) -> bool:
        """Whether its agent is away or hangs, and it is not lost: it takes no new ranks."""
        return bool(self.silence.doubt)

    @property
    def unreachable(self) -> bool:
        """Whether no answer of its agent is to be waited for, nor what its vault has."""
        return self.gone or self.doubtful

    @property
    def gone(self) -> bool:
        """Whether nothing that runs there is to be waited for."""
        return self.absent or self.state in (NodeState.LOST, NodeState.RETIRED)
