"""Node reports: what a node's agent says of the node itself, each fact once."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Bytes, Integer, Items, Opaque
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.stamp import Stamp


@dataclass(frozen=True, slots=True)
class FindingRaised:
    """A finding began or changed."""

    finding: Finding
    # When its condition began; None: when it was reported.
    since: Stamp | None = None


@dataclass(frozen=True, slots=True)
class FindingCleared:
    """A finding ended, with its healthy evidence."""

    component: q.Key
    condition: q.Key
    evidence: q.Evidence

    @property
    def key(self) -> FindingKey:
        """Return what identifies the finding on its node."""
        return FindingKey(self.component, self.condition)


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """Result of a check that an order asked for."""

    order_id: q.Key
    # The node may take ranks as far as this check can tell.
    passed: bool
    message: q.Evidence


# Rounds of a pair test; and pieces of work: some of the host, four of each accelerator.
PAIR_ROUNDS_MAX = 10
_PAIR_FIGURES_MAX = 128


@dataclass(frozen=True, slots=True)
class PairFigure:
    """How long a piece of fixed work took, in each round; equal names are equal work."""

    name: q.Word
    rounds_ns: Annotated[tuple[q.DurationNs, ...], Items(PAIR_ROUNDS_MAX)]


@dataclass(frozen=True, slots=True)
class PairTested:
    """How long fixed work took that an order asked for, or why it was not done."""

    order_id: q.Key
    figures: Annotated[tuple[PairFigure, ...], Items(_PAIR_FIGURES_MAX)] = ()
    # What was not measured and why, a sentence each.
    untested: Annotated[tuple[q.Line, ...], Items(64)] = ()
    # Why nothing was done; "" where the test ran.
    refusal: q.Evidence = ""
    # A fault that was ordered on purpose made the work more.
    injected: bool = False


@dataclass(frozen=True, slots=True)
class OrderRejected:
    """Messages of the controller of one kind that this agent cannot use, and has left out.

    ``order_id``, ``job`` and ``error`` are those of the first; "" where it has none.
    """

    # The body of the message, or of the order in it; "unknown" for one that is none.
    kind: q.Title
    order_id: q.Line
    job: q.Line
    error: q.Line
    # How many since the agent said so last.
    count: Annotated[int, Integer(1, q.COUNT_MAX)]


class InjectionState(Enum):
    """State of a fault that was ordered on purpose."""

    ORDERED = "ordered"
    ACTIVE = "active"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class InjectionChanged:
    """Change of a fault that was ordered on purpose: done, refused or over, and why."""

    # The id of the order that asked for it.
    injection: q.Key
    state: InjectionState
    message: q.Evidence

    def problems(self) -> list[str]:
        """Say what is wrong with the state."""
        if self.state is InjectionState.ORDERED:
            return ["that an injection is ordered is the controller's word, not the agent's"]
        return []


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One message of a node's kernel, for people."""

    # When it was logged; when it was read, where the source does not say.
    stamp: Stamp
    # As syslog numbers it, 0 (emergency) to 7 (debug); None where the source does not say.
    level: Annotated[int, Integer(0, 7)] | None
    text: q.Line
    # Written by a process, not by the kernel.
    injected: bool = False


@dataclass(frozen=True, slots=True)
class KernelMessages:
    """The newest kernel messages of a node that are worth showing, oldest first."""

    lines: Annotated[tuple[KernelMessage, ...], Items(20)]


@dataclass(frozen=True, slots=True)
class PeerReport:
    """A peer went silent, or is heard again, as seen from a node."""

    peer: q.HostName
    silent: bool
    silent_for_ns: q.DurationNs = 0


class TcpAnswer(Enum):
    """Answer of a peer's bulk port to a connect; all but silence are its kernel's, or a router's.

    A frozen machine, a dead one and a firewall that drops everything are SILENT; so is one of which
    only the asking node's own kernel says that it does not answer (no reply to ARP).
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    # The network says that there is no way to it.
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    # It has no such port, or the asking node could not ask: no descriptor, no route, no address.
    NOT_ASKED = "not_asked"


@dataclass(frozen=True, slots=True)
class PeerEvidence:
    """Answer to ConfirmPeer: what of the peer answered this node within about a second."""

    confirm_id: q.Key
    peer: q.HostName
    # Its agent answered a datagram.
    udp: bool
    tcp: TcpAnswer
    # How late this node's own event loop was meanwhile: what it then did not hear is no evidence.
    late_ns: q.DurationNs = 0


@dataclass(frozen=True, slots=True)
class Pong:
    """Answer to Ping, by the agent's event loop."""

    ping_id: q.Key


@dataclass(frozen=True, slots=True)
class OutputPiece:
    """Some lines that a rank wrote, with their number among all of the job on the node."""

    rank: q.Rank
    generation: q.ToldGeneration
    sequence: q.Count
    lines: Annotated[tuple[q.OutputLine, ...], Items(1000)]


@dataclass(frozen=True, slots=True)
class OutputRead:
    """Answer to ReadOutput, with the same id."""

    read_id: q.Key
    # Whether the agent has anything of the job.
    known: bool
    # Number of the newest piece among these, to ask for what follows.
    newest: q.Count = 0
    pieces: Annotated[tuple[OutputPiece, ...], Items(100_000)] = ()


# JSON of a `RankReport` of `everstep_common.hangs`: 1 to 3 KB, and what is larger is none.
RANK_REPORT_TEXT_MAX = 16 * 1024
RankReportText = Annotated[str, Opaque(1, RANK_REPORT_TEXT_MAX, "a rank's report")]


@dataclass(frozen=True, slots=True)
class RanksInspected:
    """Answer to InspectRanks, with the same id: a report of each rank, by its user's reader.

    The agent passes the reports on; what a rank says of itself, nobody has checked.
    """

    inspection_id: q.Key
    reports: Annotated[tuple[RankReportText, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    # Why ranks are missing among them; "" where none is.
    missing: q.Line = ""


@dataclass(frozen=True, slots=True)
class GoingAway:
    """Last message of a stream: the agent ends because somebody told it to."""

    reason: q.Evidence


@dataclass(frozen=True, slots=True)
class TimeReply:
    """Answer to TimeRequest: the node's clocks when it came."""

    # Echo of the request.
    sent_ns: q.TimelineNs
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class RankColumns:
    """Progress of one job's ranks on a node, as `rank_columns` packs it."""

    job: q.JobId
    generation: q.Generation
    # Ranks follow one another.
    first_rank: q.Rank
    # Little-endian, a value for each rank: steps of 64 bits, -1 for none; milliseconds of 32 bits.
    steps: Annotated[bytes, Bytes(8 * q.RANKS_OF_NODE_MAX)]
    median_ms: Annotated[bytes, Bytes(4 * q.RANKS_OF_NODE_MAX)]
    p99_ms: Annotated[bytes, Bytes(4 * q.RANKS_OF_NODE_MAX)]
    since_ms: Annotated[bytes, Bytes(4 * q.RANKS_OF_NODE_MAX)]
    # Phases and pauses, and a byte for each rank that tells which is its.
    phases: Annotated[tuple[q.Word, ...], Items(64)] = ()
    rank_phases: Annotated[bytes, Bytes(q.RANKS_OF_NODE_MAX)] = b""
    # Compute time of each, of 64 bits, as `compute_time` packs it; empty where no rank tells it.
    own: Annotated[bytes, Bytes(8 * q.RANKS_OF_NODE_MAX)] = b""
    # Roles, and a byte for each rank that tells which is its; empty where none told.
    roles: Annotated[tuple[q.Word, ...], Items(64)] = ()
    rank_roles: Annotated[bytes, Bytes(q.RANKS_OF_NODE_MAX)] = b""
    # One more than the newest step that each has printed, of 64 bits, and how long ago that was;
    # empty where steps are not read off the output.
    printed: Annotated[bytes, Bytes(8 * q.RANKS_OF_NODE_MAX)] = b""
    printed_ms: Annotated[bytes, Bytes(4 * q.RANKS_OF_NODE_MAX)] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuColumns:
    """Activity of a node's GPUs in the time of a message of samples, as `gpu_columns` packs it.

    A value for each GPU; only seconds count in which it was busy.
    """

    # PCI addresses; models, and a byte for each GPU that tells which is its.
    devices: Annotated[tuple[q.Line, ...], Items(q.GPUS_OF_NODE_MAX)]
    models: Annotated[tuple[q.Line, ...], Items(q.GPUS_OF_NODE_MAX)]
    device_models: Annotated[bytes, Bytes(q.GPUS_OF_NODE_MAX)]
    # In how many seconds it was busy.
    busy: Annotated[bytes, Bytes(q.GPUS_OF_NODE_MAX)]
    # Median of its SM clock in them, in MHz, of 16 bits; 0 where it is not known.
    sm_clock_mhz: Annotated[bytes, Bytes(2 * q.GPUS_OF_NODE_MAX)]
    # What held its clocks down in any of them: bits of `HeldBy`.
    held: Annotated[bytes, Bytes(q.GPUS_OF_NODE_MAX)]
    # Lanes and generation of its PCIe link; 0 where they are not known.
    pcie_width: Annotated[bytes, Bytes(q.GPUS_OF_NODE_MAX)]
    pcie_generation: Annotated[bytes, Bytes(q.GPUS_OF_NODE_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkColumns:
    """Minutes of the last day in which error counters of a node's RDMA ports grew.

    A value for each port, of 16 bits, little-endian, as `link_columns` packs it.
    """

    # Names, such as "mlx5_0/1".
    ports: Annotated[tuple[q.Line, ...], Items(q.PORTS_OF_NODE_MAX)]
    # In how many minutes the port retrained, lost its link, and counted symbol errors.
    recoveries: Annotated[bytes, Bytes(2 * q.PORTS_OF_NODE_MAX)]
    losses: Annotated[bytes, Bytes(2 * q.PORTS_OF_NODE_MAX)]
    symbol_errors: Annotated[bytes, Bytes(2 * q.PORTS_OF_NODE_MAX)]
    # How many minutes ago the newest and the oldest of these minutes was, 0 for none; of all ports
    # for the first counter, then for the second, and for the third.
    newest: Annotated[bytes, Bytes(6 * q.PORTS_OF_NODE_MAX)]
    oldest: Annotated[bytes, Bytes(6 * q.PORTS_OF_NODE_MAX)]
    # For each port a byte, with a bit for each counter that is full, or cannot be read.
    blind: Annotated[bytes, Bytes(q.PORTS_OF_NODE_MAX)]
    # For how many minutes the agent has watched, up to a day.
    watched: Annotated[int, Integer(0, 2**16 - 1)]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Rows of a node's metrics, in the columns of `everstep_common.samples`."""

    # Version of the columns.
    schema: Annotated[int, Integer(0, 2**32 - 1)]
    # When the first row was taken, and the time between rows.
    first: Stamp
    interval_ns: q.DurationNs
    # Little-endian 32-bit floats, row by row; NaN where a value could not be read.
    rows: Annotated[bytes, Bytes(2**20)]
    # Progress of the ranks of each job on the node.
    ranks: Annotated[tuple[RankColumns, ...], Items(16)] = ()
    # What its GPUs did meanwhile; None where there are none, and from older agents.
    gpus: GpuColumns | None = None
    # Errors of its links, once a minute; None else, where there are none, and from older agents.
    links: LinkColumns | None = None
