"""Simulated node: an agent with its outbox, a launcher, its ranks and the copies that it holds."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from everstep_common import reports
from everstep_common.orders import Publish
from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy

# A rank keeps this many own snapshots, as the vault does.
SLOTS = 3
# A peer is silent after so many probes in a row that it did not answer.
MISSES = 3


@dataclass(slots=True)
class SimulatedNode:
    """True state of one node, whatever the controller believes."""

    name: str
    boot: int = 1
    alive: bool = True
    agent: bool = True
    agents_lost: int = 0
    connected: bool = False
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
    mute_until_ns: int = 0
    # What was sent to it on its stream, and has not arrived: the stream's number, and what follows.
    inbox: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    # How many probes in a row each watched peer has not answered.
    missed: dict[str, int] = field(default_factory=dict)
    domain: str = ""
    # Number of its streams so far: the end of an old one is no news once a new one is open.
    streams: int = 0
    launcher: bool = False
    # Generation whose ranks run here, 0 for none, and the newest one that was seen.
    running: int = 0
    newest: int = 0
    settled: int = 0
    # Newest generation that was started here, and how many ranks it has on all nodes.
    planned: int = 0
    world_size: int = 0
    highest_term: int = 0
    cluster_id: str = ""
    outbox: int = 1
    sequence: int = 0
    # Ports that it has offered for a rendezvous: none is offered twice.
    ports: int = 0
    acknowledged: int = 0
    unacknowledged: list[events.Event] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
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
    # Its probes cannot be read.
    blind: bool = False

    @property
    def outbox_id(self) -> str:
        """Return the scope of this node's sequence numbers."""
        return f"{self.name}/outbox-{self.outbox}"

    @property
    def hears_nobody(self) -> bool:
        """Return whether it misses all its peers."""
        return bool(self.missed) and all(count >= MISSES for count in self.missed.values())

    def checked(self, origin: Origin, order_id: str) -> events.Reported[reports.CheckFinished]:
        """Return what a check shows."""
        message = "probe nvml: no answer" if self.blind else "all is well"
        return events.Reported(origin, 0, reports.CheckFinished(order_id, not self.blind, message))

    def origin(self) -> Origin:
        """Return the origin of the next record."""
        self.sequence += 1
        return Origin(self.name, self.outbox_id, self.sequence)

    def hello(self, job: str) -> events.NodeConnected:
        """Return what the agent says when it connects."""
        knows = self.launcher or bool(self.copies) or self.newest > 0
        size = self.world_size if self.planned == self.newest else 0
        seen = (JobOnNode(job, self.newest, self.launcher, world_size=size),) if knows else ()
        return events.NodeConnected(
            node=self.name,
            boot_id=f"{self.name}-boot-{self.boot}",
            agent_version="0.1.0",
            outbox=self.outbox_id,
            highest_term=self.highest_term,
            host=self.name,
            domain=self.domain,
            bulk_address=f"{self.name}:1",
            liveness_address=f"{self.name}:2",
            jobs=seen,
            cluster_id=self.cluster_id,
            address=self.name,
        )

    def free_port(self) -> int:
        """Return the port that it offers next."""
        self.ports += 1
        return 20000 + self.ports

    def stop_agent(self) -> None:
        """End the agent alone: its memory is kept for the next one, and launcher and ranks live."""
        self.agent = self.connected = False
        self.inbox.clear()
        self.missed.clear()

    def lose_agent(self) -> None:
        """Lose the agent with the memory that it keeps; launcher and ranks live on."""
        self.agents_lost += 1
        self.stop_agent()
        self.copies.clear()
        self.directed, self.published, self.target = 0, None, ""
        self.member_away = False
        for memory in (self.pinned, self.writing, self.files, self.write_faults):
            memory.clear()

    def die(self) -> None:
        """Lose power: processes, memory and the outbox's tail are gone."""
        self.lose_agent()
        self.alive = self.launcher = False
        self.running, self.newest, self.settled = 0, 0, 0
        self.unacknowledged.clear()

    def boot_again(self) -> None:
        """Come back from a power loss."""
        self.alive, self.agent, self.boot = True, True, self.boot + 1
        self.paused_until_ns = self.frozen_until_ns = 0
        self.outbox, self.sequence, self.acknowledged = self.outbox + 1, 0, 0

    def keep(self, copy: Copy) -> None:
        """Hold a copy; a node that is replaced in the ring keeps what it has."""
        if copy not in self.copies:
            self.copies.append(copy)

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

    def ignored(self, order: type, now_ns: int) -> bool:
        """Return whether its agent does not carry out orders of a kind now."""
        return self.ignores.get(order, 0) > now_ns

    def accepts(self, order: actions.StartGeneration) -> bool:
        """Return whether a start order is news to this node."""
        return self.launcher and order.generation > self.newest
