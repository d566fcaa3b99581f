"""Simulated node: a real agent's stream, outbox and order dispatcher, with jobs that need no ranks.

What an agent promises is kept by its own code here: `Uplink`, `ControllerChoice`, `Outbox`,
`Orders` and `TermGate`. Only what would start processes or read hardware is a stand-in.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate
from everstep_agent.persistence.agent_database import CLUSTER_NOTE
from everstep_agent.persistence.data_folder import open_store
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import boot_ns, stamp_clock
from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_common.orders import (
    ConfirmPeer,
    InspectRanks,
    JobOrder,
    PeerList,
    ReadOutput,
    SpareMemory,
    SparePreload,
    StartGeneration,
    StopGeneration,
    TellLauncher,
    VaultDirective,
)
from everstep_common.reports import (
    FindingCleared,
    FindingRaised,
    GenerationStopped,
    Hello,
    JobOnNode,
    LauncherJoined,
    OutputRead,
    Phase,
    PhaseReached,
    RankReport,
    RanksInspected,
    Report,
    StepsCompleted,
)
from everstep_common.version import VERSION
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from everstep_proto.record_codec import to_wire
from everstep_proto.reports import record_of
from fakes.no_injections import NoInjections
from fakes.no_pair_tests import NoPairTests

RANKS_PER_NODE = 8
FATAL = ("gpu/0000:3b:00.0", "XidFatal")
_TOKEN = sha256(b"token").hexdigest()
_STORE_CLOSE_S = 5.0

# What a node notes of itself: its name, the kind of what happened, and its particulars.
Note = Callable[[str, str, dict[str, object]], None]


def _key(report: FindingRaised | FindingCleared) -> tuple[str, str]:
    found = report.finding if isinstance(report, FindingRaised) else report
    return found.component, found.condition


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where a simulated node is, and how it reaches its controllers."""

    name: str
    controllers: tuple[LocalAccess, ...]
    folder: Path
    host: str = "127.0.0.1"
    # Of which job its launcher asks to be a part, "" for none; how many nodes that takes.
    job: str = ""
    nodes_min: int = 1
    nodes_max: int = 3


@dataclass(slots=True)
class _JobPart:
    """Part that this node has in its job."""

    name: str
    generation: int = 0
    stopped: int = 0
    step: int = -1
    job_id: str = ""
    lineage_id: str = ""
    world_size: int = 0

    def on_node(self) -> JobOnNode:
        """Return what Hello says of it."""
        return JobOnNode(
            job=self.name,
            generation=self.generation,
            planned_generation=self.generation,
            launcher=True,
            job_id=self.job_id,
            lineage_id=self.lineage_id,
            world_size=self.world_size,
        )

    @property
    def runs(self) -> bool:
        """Return whether it has ranks."""
        return self.generation > self.stopped


@dataclass(slots=True)
class SimulatedJobs:
    """See Jobs and the other ports of the agent's orders: what is ordered is done at once."""

    record: Callable[[Report | RankReport, str], None]
    note: Callable[[str, dict[str, object]], None]
    part: _JobPart | None = None

    def on_order(self, order: JobOrder) -> None:
        """See Jobs."""
        part, what = self.part, type(order).__name__
        told: dict[str, object] = {"order": order.id, "what": what, "job": order.job}
        self.note("obeyed", told | {"generation": getattr(order, "generation", 0)})
        if part is None or part.name != order.job:
            return
        if isinstance(order, StartGeneration) and order.generation > part.generation:
            self._start(part, order)
        elif isinstance(order, StopGeneration) and order.generation > part.stopped:
            part.stopped = order.generation
            stopped = GenerationStopped(order.generation, 29_500, boot_ns())
            self.record(stopped, part.job_id or part.name)

    def _start(self, part: _JobPart, order: StartGeneration) -> None:
        part.generation, part.world_size, part.step = order.generation, order.world_size, -1
        part.job_id, part.lineage_id = order.job_id, order.lineage_id
        for phase in Phase:
            self.record(PhaseReached(order.generation, phase, boot_ns()), part.job_id)

    def complete_step(self) -> None:
        """Have all ranks here make a step."""
        part = self.part
        if part is not None and part.runs:
            part.step += 1
            done = StepsCompleted(
                generation=part.generation,
                first_step=part.step,
                end_boot_ns=(boot_ns(),),
                stall_ns=(1000,),
            )
            self.record(done, part.job_id)

    def on_connected(self, forgotten: bool) -> None:
        """See Jobs."""
        if forgotten:
            self.note("forgotten", {})

    async def check(self) -> CheckResult:
        """Find nothing."""
        return CheckResult(True, "fine")

    def on_directive(self, directive: VaultDirective) -> None:
        """See Jobs: nothing is kept here."""

    def on_spare_memory(self, wanted: SpareMemory) -> None:
        """See Jobs: nothing is kept here."""

    def on_spare_preload(self, told: SparePreload) -> None:
        """See Jobs: nothing is imported here."""

    def read_output(self, question: ReadOutput) -> OutputRead:
        """See Jobs: nothing was written."""
        return OutputRead(question.read_id, known=False)

    def tell_launcher(self, told: TellLauncher) -> None:
        """See Jobs: nobody reads it."""

    def inspect(self, question: InspectRanks, answer: Callable[[RanksInspected], None]) -> None:
        """See Jobs: nobody answers."""

    def on_halted(self) -> None:
        """See Jobs."""
        self.note("halted", {})

    def on_away(self) -> None:
        """See Jobs."""
        self.note("away", {})


class _NoPeers:
    """See Peers: nobody is watched here."""

    def watch(self, peers: PeerList) -> None:
        """See Peers."""

    def confirm(self, question: ConfirmPeer) -> None:
        """See Peers."""

    def tell_again(self) -> None:
        """See Peers."""


@dataclass(slots=True)
class _WatchedOrders:
    """See Listener: the agent's own, with what it is told and what it takes noted beside it."""

    orders: Orders
    gate: TermGate
    note: Callable[[str, dict[str, object]], None]

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        """See Listener."""
        told: dict[str, object] = {"term": welcome.term, "acknowledged": welcome.acknowledged}
        self.note("welcome", told | {"halted": welcome.halted})
        self.orders.on_welcome(welcome, forgotten)

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        """See Listener."""
        refused = self.gate.refused
        self.orders.on_message(message)
        if message.WhichOneof("body") == "order":
            order = message.order
            told: dict[str, object] = {"term": order.term, "order": order.order_id}
            told["what"] = order.WhichOneof("body") or ""
            self.note("refused" if self.gate.refused > refused else "taken", told)

    def on_halted(self) -> None:
        """See Listener."""
        self.orders.on_halted()

    def on_away(self) -> None:
        """See Listener."""
        self.orders.on_away()


class _NotedOutbox(Outbox):
    """The agent's own outbox, with what is acknowledged noted beside it."""

    noted: Callable[[int], None] = staticmethod(lambda _: None)
    # The number of the newest record but for progress, which waits for that of other nodes.
    last_recorded = 0

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outbox."""
        super().record(record)
        if record.WhichOneof("body") != "steps_completed":
            self.last_recorded = record.sequence

    @property
    def is_settled(self) -> bool:
        """Return whether all but progress is acknowledged."""
        first = self.first_unacknowledged
        return not first or first > self.last_recorded

    def acknowledge(self, sequence: int) -> None:
        """See Outbox."""
        self.noted(sequence)
        super().acknowledge(sequence)


@dataclass(slots=True)
class SimulatedNode:
    """Agent of one node, until it is closed; the next one in its folder goes on from there."""

    place: NodePlace
    note: Note
    outbox: _NotedOutbox = field(init=False)
    uplink: Uplink = field(init=False)
    jobs: SimulatedJobs = field(init=False)
    gate: TermGate = field(init=False)
    _orders: _WatchedOrders = field(init=False)
    _close: Callable[[], None] = field(init=False)
    _cluster: ClusterMembership = field(init=False)
    _found: int = 0

    def __post_init__(self) -> None:
        place, config = self.place, AgentConfig()
        store, remembered = open_store(place.folder, config.outbox_write_timeout_s)
        self._close = partial(store.close, _STORE_CLOSE_S)
        note, stamp = partial(self.note, place.name), stamp_clock()
        outbox = _NotedOutbox(store, remembered, stamp, config.outbox_records_max)
        outbox.last_recorded = max(
            (fleet_pb2.Record.FromString(one).sequence for one in remembered.records), default=0
        )
        outbox.noted = lambda through: note("ack", {"outbox": outbox.name, "through": through})
        self.outbox = outbox
        settings = UplinkSettings(
            controllers=place.controllers,
            connect_timeout_s=config.connect_timeout_s,
            silence_s=config.controller_timeout_s,
        )
        backoff = Backoff(random.Random(), 0.1, config.reconnect_backoff_max_s)
        notes = remembered.notes
        cluster = ClusterMembership(notes.get(CLUSTER_NOTE, ""), partial(store.note, CLUSTER_NOTE))
        self.uplink = Uplink(settings, outbox, stamp, backoff, cluster)
        self.gate = TermGate(
            int(notes.get("highest_term", "0")), lambda term: store.note("highest_term", str(term))
        )
        self.jobs = jobs = SimulatedJobs(
            self.record, note, _JobPart(place.job) if place.job else None
        )
        targets = OrderTargets(
            jobs,
            _NoPeers(),
            jobs.check,
            outbox.record,
            NoInjections(),
            NoPairTests(),
            self.uplink.say,
        )
        self._orders = _WatchedOrders(Orders(self.gate, targets), self.gate, note)
        self._cluster = cluster
        note("begun", {"outbox": outbox.name})

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        await self.uplink.run(self._hello, self._orders)

    def close(self) -> None:
        """Have what is left on the disk."""
        self._close()

    def record(self, report: Report | RankReport, job: str = "") -> None:
        """Put a report into the outbox, and note that."""
        record = record_of(report, job)
        self.outbox.record(record)
        told: dict[str, object] = {"outbox": self.outbox.name, "sequence": record.sequence}
        # What comes again and again of one component is merged, and has no row of its own.
        flaps = isinstance(report, FindingRaised | FindingCleared) and _key(report) == FATAL
        told |= {"what": type(report).__name__, "flaps": flaps}
        self.note(self.place.name, "recorded", told)

    def join(self) -> None:
        """Have a launcher ask for the job."""
        place = self.place
        if place.job:
            joined = LauncherJoined(
                token_sha256=_TOKEN,
                uid=0,
                nodes_min=place.nodes_min,
                nodes_max=place.nodes_max,
                processes_per_node=RANKS_PER_NODE,
                reform=True,
                restarts_max=1000,
                free_port=29_500,
            )
            self.record(joined, place.job)

    def find_something(self) -> None:
        """Raise a finding that is none of before, and clear it."""
        self._found += 1
        component = f"disk/{self.outbox.counts.recorded}-{boot_ns() % 10**9}"
        found = Finding(
            component=component,
            condition="Odd",
            severity=Severity.INFO,
            message="odd",
            suggested_action=SuggestedAction.NONE,
        )
        self.record(FindingRaised(found))
        self.record(FindingCleared(component, "Odd", "even"))

    def find_fatal(self) -> None:
        """Raise a finding for which the node is isolated."""
        component, condition = FATAL
        found = Finding(
            component=component,
            condition=condition,
            severity=Severity.FATAL,
            message="Xid 79: GPU has fallen off the bus.",
            suggested_action=SuggestedAction.NONE,
        )
        self.record(FindingRaised(found))

    def clear_fatal(self) -> None:
        """Clear it."""
        self.record(FindingCleared(*FATAL, "the GPU is back"))

    def _hello(self) -> fleet_pb2.Hello:
        place, part = self.place, self.jobs.part
        hello = Hello(
            node=place.name,
            agent_version=VERSION,
            outbox=self.outbox.name,
            first_unacknowledged=self.outbox.first_unacknowledged,
            highest_term=self.gate.highest,
            stamp=stamp_clock()(),
            domain=f"rack-{place.name}",
            bulk_address=f"{place.host}:1",
            liveness_address=f"{place.host}:1",
            host=place.host,
            jobs=(part.on_node(),) if part is not None and part.generation else (),
            cluster_id=self._cluster.cluster_id,
            takes_revoked=True,
        )
        return to_wire(hello, fleet_pb2.Hello)
