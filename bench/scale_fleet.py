"""Fleet for scale benchmarks: a core that is fed by hand with many nodes and a large job."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep_common import reports
from everstep_common.preload import Preload
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import Origin
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.messages import Directive
from everstep_controller.journal.codec import encode, kind_of
from everstep_controller.journal.port import StoredEvent

JOB = "train"
RANKS_PER_NODE = 8
_S = 1_000_000_000


@dataclass(slots=True)
class Bench:
    """A controller's core that is fed by hand, and everything that it was fed."""

    nodes: list[str]
    members: list[str]
    core: Core = field(default_factory=Core)
    now_ns: int = _S
    journal: list[StoredEvent] = field(default_factory=list)
    _sequence: int = 0

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self.members) * RANKS_PER_NODE

    def take(self, event: events.Event) -> float:
        """Hand an event to the core; return the seconds that it took."""
        self.now_ns += 1000
        self.journal.append(StoredEvent(self.now_ns, self.now_ns, kind_of(event), encode(event)))
        began = time.perf_counter()
        self.core.handle(event, self.now_ns)
        return time.perf_counter() - began

    def origin(self, node: str) -> Origin:
        """Return the origin of a node's next record."""
        self._sequence += 1
        return Origin(node, f"outbox-{node}", self._sequence)

    def step_of(self, number: int, generation: int = 1) -> events.JobProgressed:
        """Return the row of one step, told by all members."""
        end_ns = (self.now_ns + _S,)
        return events.JobProgressed(
            job=JOB,
            generation=generation,
            first_step=number,
            end_ns=end_ns,
            stall_ns=(0,),
        )


class Recorder:
    """VaultPort for benchmarks: sends nothing to anybody."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.time_ns = 0
        self._posted: list[events.Event] = []

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        """See VaultPort."""
        return True

    def direct(self, node: str, directive: Directive) -> bool:
        """See VaultPort."""
        return True

    def post(self, event: events.Event) -> None:
        """See VaultPort."""
        self._posted.append(event)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """See VaultPort."""
        self.waiting.append(callback)

    def announce(self, subject: str, reason: str, message: str) -> None:
        """See VaultPort."""

    def now_ns(self) -> int:
        """See VaultPort."""
        return self.time_ns

    def run_waiting(self) -> None:
        """Do what was to be done later."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def posted(self) -> list[events.Event]:
        """Return, once, what was to be journaled."""
        posted, self._posted = self._posted, []
        return posted


def form(bench: Bench) -> None:
    """Let all nodes connect and a job start on its members."""
    take, origin = bench.take, bench.origin
    take(events.ControllerStarted("bench"))
    for name in bench.nodes:
        hello = events.NodeConnected(
            node=name,
            boot_id="boot",
            agent_version="1",
            outbox=f"outbox-{name}",
            highest_term=0,
            host="127.0.0.1",
            domain=f"rack-{int(name[1:]) // 32}",
            bulk_address="127.0.0.1:7436",
            liveness_address="127.0.0.1:7437",
        )
        take(hello)
        order = f"{name}/check/{bench.core.state.nodes[name].health.checks}"
        take(events.Reported(origin(name), 0, reports.CheckFinished(order, True, "fine")))
    count = len(bench.members)
    for name in bench.members:
        take(joined(origin(name), count))
    take(events.RecoveryStepChosen(job=JOB, generation=1, step=None))


def joined(origin: Origin, count: int) -> events.Reported[reports.LauncherJoined]:
    """Return the word of a launcher that wants to take part."""
    return events.Reported(
        origin,
        0,
        reports.LauncherJoined(
            uid=0,
            token_sha256="token",
            nodes_min=count,
            nodes_max=count,
            processes_per_node=RANKS_PER_NODE,
            reform=True,
            restarts_max=3,
            free_port=29500,
        ),
        JOB,
    )


def copies(bench: Bench, index: int, steps: Sequence[int]) -> list[Copy]:
    """Return what a node holds: its own ranks, and those of the node before it."""
    return [
        Copy(
            bench.members[index], 1, home * RANKS_PER_NODE + rank, step, home != index, "f" * 32,
            1 << 30, f"shard-{home * RANKS_PER_NODE + rank}",
        )
        for home in (index, (index - 1) % len(bench.members))
        for rank in range(RANKS_PER_NODE)
        for step in steps
    ]  # fmt: skip
