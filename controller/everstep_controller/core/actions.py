"""Actions: what the core orders the shell to do; each has an id, so that none is done twice.

What a node is ordered to do is said in `everstep_common.orders`.
"""

from dataclasses import dataclass
from enum import Enum

from everstep_common.orders import (
    ClearInjection,
    EndJob,
    ForgetJob,
    HoldLauncher,
    Inject,
    KeepJob,
    Order,
    RefuseLauncher,
    RunCheck,
    RunPairTest,
    StartGeneration,
    StopGeneration,
)
from everstep_common.reports import StoredStep
from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.core.model.snapshots import BranchPoint, StepKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmSilence:
    """Ask a node what of a peer answers, by UDP and at its bulk port; PeerJudged answers."""

    id: str
    node: str
    reason: str
    peer: str
    peer_address: str
    # host:port; empty where it has none.
    peer_bulk_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PingAgent:
    """Ask an agent's event loop for an answer on its stream; AgentAnswered is the answer.

    The transport answers pings of its own also while the loop hangs; this one it does not.
    """

    id: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRoll:
    """Ask the agents of all nodes for an answer on their streams; RollCalled tells how many did.

    It is enough to know that more than half of ``expected`` have answered.
    """

    id: str
    reason: str
    expected: int
    timeout_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewStream:
    """End the stream of a node's agent, which opens another at once and says what is open."""

    id: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyIsolation:
    """Have a scheduler withhold or free nodes, through its driver; DriverReported answers."""

    id: str
    driver: str
    reason: str
    wanted: tuple[WantedIsolation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIsolation:
    """Have read through a driver what its scheduler withholds; DriverReported answers."""

    id: str
    driver: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseRecoveryStep:
    """Ask the catalogue for the newest step of the branch that can be restored.

    It answers with RecoveryStepChosen, after every holder has settled ``settled_generation``, and
    every one of ``others`` has reported its copies since the controller started, or is lost or
    overdue.
    """

    id: str
    job: str
    generation: int
    settled_generation: int
    holders: tuple[str, ...]
    branch: tuple[BranchPoint, ...]
    # The job has committed a snapshot before: an empty answer must say what is lost.
    expected: bool
    reason: str
    # Nodes that ran older generations and may hold copies of them.
    others: tuple[str, ...] = ()
    # Steps in storage that launchers told of, and states that the job crashed from again and again.
    stored: tuple[StoredStep, ...] = ()
    avoided: tuple[StepKey, ...] = ()
    # Of all these nodes, those that nobody waits for any more; what they hold counts if they told.
    overdue: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Report TimerDue at or after a time; replaces the timer of the same name."""

    id: str
    timer: str
    at_ns: int


class Topic(Enum):
    """What kind of news a line of the event list is."""

    DECISION_TAKEN = "decision.taken"
    FINDING_RAISED = "finding.raised"
    FINDING_CLEARED = "finding.cleared"
    INCIDENT_BEGUN = "incident.begun"
    INCIDENT_OVER = "incident.over"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a line is about, for programs: its topic, the finding, and when the evidence was seen.

    The words are those of Finding; empty where a line is about no finding.
    """

    topic: Topic = Topic.DECISION_TAKEN
    # When it was seen; 0: as the line was written.
    evidence_ns: int = 0
    component: str = ""
    condition: str = ""
    severity: str = ""
    # How far automation may go for it, here.
    mode: str = ""
    evidence: str = ""
    suggested_action: str = ""
    injected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Tell people: the event list, the log, the metric, and webhooks."""

    id: str
    subject: str
    reason: str
    message: str
    # None: a decision by what is so now, or what its reason says.
    about: About | None = None


Action = (
    Order
    | ConfirmSilence
    | PingAgent
    | CallRoll
    | RenewStream
    | ApplyIsolation
    | ReadIsolation
    | ChooseRecoveryStep
    | SetTimer
    | Announce
)
