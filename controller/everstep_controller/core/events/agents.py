"""Events of agents: connections, silent peers, reports, and the steps that all nodes told of."""

import typing
from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.reports import (
    EndedJob,
    Inventory,
    JobOnNode,
    RankExited,
    Report,
    StepPause,
    StepsCompleted,
    TcpAnswer,
)
from everstep_controller.core.model.node import Origin, Reported


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
    # Since when, in the same order; of those that have none, since now.
    findings_since_ns: tuple[int, ...] = ()
    cluster_id: str = ""
    # Where its stream comes from: a host; and the machine that it runs on, "" where it is not told.
    address: str = ""
    machine: str = ""
    # Jobs that have ended within a day, as this agent was told.
    ended_jobs: tuple[EndedJob, ...] = ()
    # It was turned away at the door and has no stream: it is judged, and nothing of it is taken.
    knocks: bool = False


@dataclass(frozen=True, slots=True)
class NodeDisconnected:
    """An agent's stream ended; ``reason`` is what the controller could not go on with, if any."""

    node: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PeerReported:
    """A node that watches a peer over UDP says that it went silent, or is heard again."""

    node: str
    peer: str
    silent: bool
    # How long the watcher has heard nothing of it by then.
    silent_for_ns: int = 0


@dataclass(frozen=True, slots=True)
class PeerJudged:
    """A node that was asked says what of a peer answers: its agent by UDP, its kernel by TCP."""

    node: str
    peer: str
    confirm_id: str
    udp: bool
    tcp: TcpAnswer = TcpAnswer.NOT_ASKED
    # How late the node itself was while it asked: what it then did not hear is no evidence.
    late_ns: int = 0


@dataclass(frozen=True, slots=True)
class AgentAnswered:
    """An agent's event loop answered a ping on its stream."""

    node: str
    ping_id: str


@dataclass(frozen=True, slots=True)
class AgentLeaving:
    """An agent ends as was asked of it, and says so: its silence from now on is none."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class FindingSettled:
    """A flapping finding of an agent has settled: it stays open, or (None) is over.

    It stands for all records of that, which are no events of their own.
    """

    node: str
    key: FindingKey
    at_ns: int
    finding: Finding | None
    evidence: str
    # When that was seen; 0: when it began.
    seen_ns: int = 0


AgentEvent = (
    NodeConnected
    | NodeDisconnected
    | PeerReported
    | PeerJudged
    | AgentAnswered
    | AgentLeaving
    | FindingSettled
)


ReportedEvent = Reported[Report]
# Steps are put together to rows before they are journaled: see JobProgressed.
REPORTS: frozenset[type] = frozenset(typing.get_args(Report)) - {StepsCompleted}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """Consecutive steps that all ranks completed: one row for about a second of steps.

    It names no records of agents: what is told again is known by job, generation and step.
    """

    job: str
    generation: int
    first_step: int
    # End of each step on the controller's timeline, and how long it stood still for its snapshot.
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    # Newest step that is recoverable without any one node, when the row was made.
    recoverable_step: int | None = None
    snapshots_skipped: int = 0
    # What ranks declared to be no step, of steps that had some.
    pauses: tuple[StepPause, ...] = ()


@dataclass(frozen=True, slots=True)
class EqualExits:
    """Ends of ranks of one node that say the same: the earliest whole, and which ended when.

    The times of all are kept: blame goes by who was first among the ranks of all nodes.
    """

    report: RankExited
    ranks: tuple[int, ...]
    at_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksExited:
    """Ranks of one node ended after another one of their generation: one row for all of them.

    ``origin`` is the newest of the records that it was made from; ``first_sequence`` is the number
    of the oldest, in the same outbox.
    """

    origin: Origin
    first_sequence: int
    job: str
    exits: tuple[EqualExits, ...]
