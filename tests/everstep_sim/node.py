"""Simulated node: an agent with its outbox, and of each job a launcher, its ranks and copies."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache

from everstep_common import reports
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.orders import Publish
from everstep_common.reports import (
    Accelerator,
    EndedJob,
    Inventory,
    JobOnNode,
    RanksWithoutSnapshot,
)
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy
from everstep_sim.clocks import MachineClock
from everstep_sim.outbox import Outbox

# A rank keeps this many own snapshots, as the vault does.
SLOTS = 3
# A peer is silent after so many probes in a row that it did not answer.
MISSES = 3
# How many of the newest times from a commit to a free slot are remembered, as the agent does.
_TIMES_KEPT = 64
# How long a piece of the fixed work of a pair test takes.
_WORK_NS = 10_000_000


@dataclass(slots=True)
class LocalJob:
    """One job on one node: its launcher and ranks, and what the agent keeps of it."""

    # As orders have told; "" before.
    id: str = ""
    lineage_id: str = ""
    launcher: bool = False
    # Generation whose ranks run here, 0 for none, and the newest one that was seen.
    running: int = 0
    newest: int = 0
    settled: int = 0
    # Newest generation that the controller planned of those that were started here.
    controllers: int = 0
    # Newest generation that was started here, and how many ranks it has on all nodes.
    planned: int = 0
    world_size: int = 0
    # A snapshot of it may have been made here, or restored; it has storage; and the newest
    # generation of which a stop was ordered.
    snapshotted: bool = True
    stores: bool = False
    stopped: int = 0
    copies: list[Copy] = field(default_factory=list)
    # The newest step that its rank has left out because no slot was free.
    left_out: reports.PassedStep | None = None
    # Newest generation of a directive, its steps that must stay in memory, and what follows.
    directed: int = 0
    pinned: set[int] = field(default_factory=set)
    # Who keeps its replicas, as it was told.
    target: str = ""
    writing: list[Copy] = field(default_factory=list)
    files: list[Copy] = field(default_factory=list)
    write_faults: set[StepKey] = field(default_factory=set)
    published: Publish | None = None
    # As its agent was told: the agent of another member is away.
    member_away: bool = False
    # Which steps are snapshotted, from which on, and the last one before a restart.
    every: int = 1
    every_from: int = 0
    hold_after: int | None = None
    # The step that ranks without an agent are to write, which this node orders and reads in.
    absent_step: int | None = None
    # The newest recoverable step that it was told, and how long slots took from commit to free.
    recoverable: StepKey | None = None
    slots_taken_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES_KEPT))
    committed_ns: dict[Copy, int] = field(default_factory=dict)
    # The generation that ran before this agent process did, and the first step that it saw of it.
    found: int = 0
    first_step: int | None = None

    def seen(self, name: str) -> JobOnNode | None:
        """Return what the agent knows of it, if anything."""
        if not (self.launcher or self.copies or self.newest):
            return None
        size = self.world_size if self.planned == self.newest else 0
        return JobOnNode(
            name,
            self.newest,
            self.launcher,
            planned_generation=self.controllers,
            job_id=self.id,
            lineage_id=self.lineage_id,
            world_size=size,
            without_snapshot=self._without_snapshot(),
        )

    def _without_snapshot(self) -> RanksWithoutSnapshot | None:
        if not self.planned or self.snapshotted or self.stores or self.copies:
            return None
        stop_ordered = self.stopped >= self.planned
        return RanksWithoutSnapshot(self.planned, 1, self.world_size, stop_ordered)

    def begin(self, order: actions.StartGeneration) -> None:
        """Take the order to start a generation, which is news."""
        restores = order.restore_step is not None
        self.snapshotted = restores or bool(self.planned and self.snapshotted)
        self.running = self.newest = self.planned = order.generation
        self.controllers = order.generation
        self.world_size = order.world_size

    def lose_memory(self) -> None:
        """Lose what the agent keeps of it."""
        self.copies.clear()
        self.snapshotted = True
        self.directed, self.published, self.target = 0, None, ""
        self.left_out = None
        self.member_away, self.recoverable = False, None
        self.every, self.every_from, self.hold_after, self.absent_step = 1, 0, None, None
        for memory in (self.pinned, self.writing, self.files, self.write_faults):
            memory.clear()
        self.slots_taken_s.clear()
        self.committed_ns.clear()

    def plans(self, generation: int, step: int) -> bool:
        """Return whether a step is snapshotted, as its agent was told."""
        if generation != self.directed or step == self.hold_after:
            return True
        return step < self.every_from or step % self.every == 0

    def keep(self, copy: Copy) -> None:
        """Hold a copy; a node that is replaced in the ring keeps what it has."""
        if copy not in self.copies:
            self.copies.append(copy)

    def commit(self, copy: Copy, now_ns: int) -> None:
        """Hold what a rank here has snapshotted."""
        self.snapshotted = True
        self.keep(copy)
        self.committed_ns[copy] = now_ns

    def measure_slots(self, now_ns: int) -> None:
        """Look which slots are free again."""
        for copy in self.committed_ns.keys() - set(self.copies):
            self.slots_taken_s.append((now_ns - self.committed_ns.pop(copy)) / 1e9)

    def passed_steps(self) -> tuple[reports.PassedStep, ...]:
        """Return what its rank has left out that is newer than its copies."""
        out = self.left_out
        if out is None or self.member_away or out.generation != self.newest:
            return ()
        own = (c.step for c in self.copies if c.generation == out.generation and not c.replica)
        return (out,) if out.step > max(own, default=-1) else ()

    def free_dead(self, generation: int, steps: Collection[int]) -> None:
        """Free steps that will never be whole."""
        dead = set(steps) - self.pinned
        self.copies = [c for c in self.copies if c.generation != generation or c.step not in dead]

    def free_below(self, generation: int, step: int) -> None:
        """Free what a newer recoverable step has made needless."""
        self.copies = [
            copy
            for copy in self.copies
            if (copy.generation == generation and (copy.step >= step or copy.step in self.pinned))
            or copy.generation > generation
        ]

    def accepts(self, order: actions.StartGeneration) -> bool:
        """Return whether a start order is news here."""
        return self.launcher and order.generation > self.newest


@dataclass(slots=True)
class Leftovers:
    """What is left on a node of ranks that were killed."""

    # For how long after their end the memory of a device stays in use.
    memory_s: float = 0.0
    # The kernel does not let a rank go; in a driver of a device, or who knows where.
    stuck: bool = False
    in_driver: bool = True


@dataclass(slots=True)
class StreamLag:
    """How late messages on a node's stream are; each way they come in order."""

    by_ns: int = 0
    # When the newest of those on their way arrives, each way.
    up_ns: int = -1
    down_ns: int = -1
    # The newest stream whose end the controller knows: nothing of it is taken any more.
    ended: int = 0


@dataclass(slots=True)
class SimulatedNode:
    """True state of one node, whatever the controller believes."""

    name: str
    clock: MachineClock
    alive: bool = True
    agent: bool = True
    agents_lost: int = 0
    connected: bool = False
    # The controller has said on its stream that it acts on nothing.
    told_halted: bool = False
    # It will try to open its stream anew.
    knocks: bool = False
    cut_off: bool = False
    # Until when its agent's loop stands still, and until when the whole machine does.
    paused_until_ns: int = 0
    frozen_until_ns: int = 0
    # Orders that its agent does not carry out though it answers pings, until when; and how much
    # later than others it carries them out.
    ignores: dict[type, int] = field(default_factory=dict)
    delays_s: dict[type, float] = field(default_factory=dict)
    # Until when its ranks come no further, and when it tells nobody what it holds.
    hung_until_ns: int = 0
    # Until when its ranks are stopped, as SIGSTOP does; SIGKILL ends them all the same.
    stopped_until_ns: int = 0
    mute_until_ns: int = 0
    # What was sent to it on its stream, and has not arrived: the stream's number, and what follows.
    inbox: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    # How many probes in a row each watched peer has not answered.
    missed: dict[str, int] = field(default_factory=dict)
    domain: str = ""
    # How many accelerators it has; 0: it tells of none.
    devices: int = 0
    # Number of its streams so far: the end of an old one is no news once a new one is open.
    streams: int = 0
    # By name.
    jobs: dict[str, LocalJob] = field(default_factory=dict)
    highest_term: int = 0
    cluster_id: str = ""
    # Jobs that it was told to end, by their ids: on its disk.
    ended: dict[str, EndedJob] = field(default_factory=dict)
    # What its machine is called, whatever its agent says.
    host: str = field(init=False)
    outbox: Outbox = field(init=False)
    lag: StreamLag = field(default_factory=StreamLag)
    # Ports that it has offered for a rendezvous: none is offered twice.
    ports: int = 0
    # Its probes cannot be read.
    blind: bool = False
    leftovers: Leftovers = field(default_factory=Leftovers)
    # How many times as long as elsewhere fixed work takes; and what it took when it was ordered.
    work_factor: float = 1.0
    work: dict[str, reports.PairTested] = field(default_factory=dict)
    # What its agent finds, until that is over or the machine boots anew.
    findings: dict[FindingKey, Finding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.host = self.name
        self.outbox = Outbox(self.host)

    def of(self, job: str) -> LocalJob:
        """Return what it has of a job, by its name."""
        return self.jobs.setdefault(job, LocalJob())

    @property
    def outbox_id(self) -> str:
        """Return the scope of this node's sequence numbers."""
        return self.outbox.id

    @property
    def ranks_come_ns(self) -> int:
        """Return when its ranks come to their next operation again, if they live."""
        return max(self.frozen_until_ns, self.hung_until_ns, self.stopped_until_ns)

    @property
    def is_guided(self) -> bool:
        """Return whether its agent is connected to a controller that acts, as far as it knows."""
        return self.connected and not self.told_halted

    @property
    def hears_nobody(self) -> bool:
        """Return whether it misses all its peers."""
        return bool(self.missed) and all(count >= MISSES for count in self.missed.values())

    def checked(self, origin: Origin, order_id: str) -> events.Reported[reports.CheckFinished]:
        """Return what a check shows."""
        message = "probe nvml: no answer" if self.blind else "all is well"
        return events.Reported(origin, 0, reports.CheckFinished(order_id, not self.blind, message))

    @property
    def has_ranks(self) -> bool:
        """Return whether ranks of any job run here."""
        return any(local.running for local in self.jobs.values())

    def worked(self, order: actions.RunPairTest) -> reports.PairTested:
        """Return how long fixed work takes here."""
        took_ns = round(_WORK_NS * self.work_factor)
        figure = reports.PairFigure("gpu0 compute", (took_ns,) * order.rounds)
        return reports.PairTested(order.id, (figure,))

    def hello(self) -> events.NodeConnected:
        """Return what the agent says when it connects."""
        seen = (local.seen(name) for name, local in self.jobs.items())
        return events.NodeConnected(
            node=self.name,
            boot_id=self.clock.boot_id,
            agent_version="0.1.0",
            outbox=self.outbox_id,
            highest_term=self.highest_term,
            host=self.host,
            domain=self.domain,
            bulk_address=f"{self.host}:1",
            liveness_address=f"{self.host}:2",
            open_findings=tuple(self.findings.values()),
            inventory=_inventory(self.devices),
            jobs=tuple(one for one in seen if one is not None),
            cluster_id=self.cluster_id,
            address=self.host,
            machine=self.host,
            ended_jobs=tuple(self.ended.values()),
        )

    def remember_end(self, told: actions.EndJob) -> None:
        """Remember that a job is over, by the newest controller's word."""
        known, local = self.ended.get(told.job_id), self.jobs.get(told.job)
        own = local.newest if local is not None and local.id == told.job_id else 0
        seen = max(own, told.generation)
        self.ended[told.job_id] = EndedJob(
            job=told.job,
            job_id=told.job_id,
            generation=seen if known is None else max(known.generation, seen),
            term=self.highest_term,
            succeeded=told.succeeded if known is None else known.succeeded,
            unsaved=told.unsaved if known is None else known.unsaved,
            reason=told.reason if known is None else known.reason,
        )

    def rename(self, name: str) -> None:
        """Have another name: whatever its agent holds it tells under that."""
        self.name = name
        for local in self.jobs.values():
            for held in (local.copies, local.writing, local.files):
                held[:] = [copy._replace(node=name) for copy in held]

    def free_port(self) -> int:
        """Return the port that it offers next."""
        self.ports += 1
        return 20000 + self.ports

    def stop_agent(self) -> None:
        """End the agent alone: its memory is kept for the next one, and launcher and ranks live."""
        self.agent = self.connected = False
        self.inbox.clear()
        self.missed.clear()
        for local in self.jobs.values():
            local.found, local.first_step = local.newest, None

    def lose_agent(self) -> None:
        """Lose the agent with the memory that it keeps; launchers and ranks live on."""
        self.agents_lost += 1
        self.work.clear()
        self.stop_agent()
        for local in self.jobs.values():
            local.lose_memory()

    def die(self) -> None:
        """Lose power: processes, memory and the outbox's tail are gone."""
        self.lose_agent()
        self.alive = False
        self.jobs.clear()
        self.findings.clear()
        self.outbox.waiting.clear()

    @property
    def boot(self) -> int:
        """Return the number of its boot."""
        return self.clock.boot

    def boot_again(self, now_ns: int, *, diskless: bool) -> None:
        """Come back from a power loss; without a disk the agent has no data folder any more."""
        self.alive = self.agent = True
        self.clock.reboot(now_ns)
        self.paused_until_ns = self.frozen_until_ns = self.stopped_until_ns = 0
        if diskless:
            self.outbox.begin_anew()
            self.highest_term, self.cluster_id = 0, ""
            self.ended.clear()
        else:
            self.outbox.lose_tail()

    def ignored(self, order: type, now_ns: int) -> bool:
        """Return whether its agent does not carry out orders of a kind now."""
        return self.ignores.get(order, 0) > now_ns


@cache
def _inventory(devices: int) -> Inventory:
    return Inventory(accelerators=tuple(map(_accelerator, range(devices))))


def _accelerator(index: int) -> Accelerator:
    return Accelerator(
        uuid=f"GPU-{index}",
        name="GPU",
        vendor="nvidia",
        pci_address=f"0000:{index:02}:00.0",
        memory_bytes=1 << 36,
        driver="1",
    )
