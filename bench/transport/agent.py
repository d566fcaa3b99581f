"""An agent's side of its stream: what it says of a node with 8 ranks, and what it answers.

What is said, and how often, is what was found on the streams of real agents (2026-11-23).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Any

from everstep_common.samples import COLUMNS, SCHEMA
from everstep_proto.generated import fleet_pb2

JOB = "train"
RANKS_PER_NODE = 8
SAMPLE_S = 5.0
_TOKEN = sha256(b"token").hexdigest()
_ROWS = bytes(4 * len(COLUMNS) * int(SAMPLE_S))
_GIB = 1 << 30
_KERNEL_LINES = 5
_INVENTORY = fleet_pb2.Inventory(
    kernel="6.1.0",
    cpu_model="simulated",
    cpu_count=64,
    memory_bytes=512 * _GIB,
    interfaces=[
        fleet_pb2.Interface(name=f"mlx5_{n}/1", kind="infiniband", up=True) for n in range(8)
    ],
    accelerators=[
        fleet_pb2.Accelerator(uuid=f"GPU-{n}", name="simulated", vendor="nvidia")
        for n in range(RANKS_PER_NODE)
    ],
)

Say = Callable[["Agent", fleet_pb2.AgentMessage], None]
# One node in so many has this finding: some are degraded, fewer have a GPU that is lost.
_DEGRADED, _FATAL = 50, 200


def name_of(index: int) -> str:
    """Return the name of a node."""
    return f"gpu-{index:04}"


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _hash(*of: object) -> bytes:
    return blake2b(repr(of).encode(), digest_size=16).digest()


@dataclass
class Agent:
    """One agent; ``say`` sends a message on its stream."""

    index: int
    nodes: int
    say: Say
    welcomed: bool = False
    # Records that were sent, and that were acknowledged.
    sequence: int = 0
    acknowledged: int = 0
    generation: int = 0
    step: int = -1
    # Newest step that the controller called recoverable.
    recoverable: int = -1
    job_id: str = ""
    first_rank: int = 0
    # Name of the node that gets replicas of what this one holds.
    target: str = ""
    _told: list[fleet_pb2.VaultCopy] = field(default_factory=list)
    _reported: bool = False
    _settled: int = 0
    _stamp: fleet_pb2.Stamp = field(default_factory=fleet_pb2.Stamp)

    def __post_init__(self) -> None:
        self.name = name_of(self.index)
        self._boot_id = f"boot-{self.name}"

    # --- what it says ----------------------------------------------------------------------------

    def hello(self) -> None:
        """Say Hello on a new stream; what is not acknowledged is not sent again."""
        self.welcomed = self._reported = False
        message = fleet_pb2.AgentMessage()
        hello = message.hello
        hello.node, hello.agent_version, hello.outbox = self.name, "0.1.0", f"outbox-{self.name}"
        hello.stamp.CopyFrom(self._now())
        hello.inventory.CopyFrom(_INVENTORY)
        hello.domain = f"rack-{self.index // 32:02}"
        hello.host, hello.bulk_address = "127.0.0.1", "127.0.0.1:1"
        hello.liveness_address = "127.0.0.1:1"
        if self.generation:
            seen = hello.jobs.add()
            seen.job, seen.job_id, seen.lineage_id = JOB, self.job_id, self.job_id
            seen.generation = seen.planned_generation = self.generation
            seen.launcher, seen.world_size = True, self.nodes * RANKS_PER_NODE
        self.say(self, message)

    def find(self) -> None:
        """Raise a finding, if this node is one of the few that have one."""
        if self.index % _DEGRADED and self.index % _FATAL:
            return
        fatal = not self.index % _FATAL
        finding = fleet_pb2.Finding(
            component="gpu/0000:3b:00.0" if fatal else "link/mlx5_3/1",
            condition="XidFatal" if fatal else "LinkDegraded",
            severity=fleet_pb2.SEVERITY_FATAL if fatal else fleet_pb2.SEVERITY_DEGRADED,
            suggested_action=fleet_pb2.SUGGESTED_ACTION_NONE,
            message="Xid 79: GPU has fallen off the bus." if fatal else "12 errors in a minute",
        )
        self._record(finding_raised=fleet_pb2.FindingRaised(finding=finding, since=self._now()))

    def join(self) -> None:
        """Have a launcher ask for a job on all nodes."""
        joined = fleet_pb2.LauncherJoined(
            token_sha256=_TOKEN,
            nodes_min=self.nodes,
            nodes_max=self.nodes,
            processes_per_node=RANKS_PER_NODE,
            reform=True,
            restarts_max=10,
            replica_nodes=1,
            free_port=29500,
        )
        self._record(launcher_joined=joined)

    def complete_step(self, step: int) -> None:
        """Tell that all ranks here have completed a step."""
        self.step = step
        done = fleet_pb2.StepsCompleted(
            generation=self.generation, first_step=step, end_boot_ns=[_boot_ns()], stall_ns=[1000]
        )
        self._record(steps_completed=done)

    def commit(self, step: int) -> None:
        """Report copies that the first ranks here committed, and what was freed for them."""
        gone = [copy for copy in self._told if copy.step < step - 1]
        self._report(self.copies(step, replica=False)[: RANKS_PER_NODE // 2], gone)

    def commit_rest(self, step: int) -> None:
        """Report the copies of the other ranks here."""
        self._report(self.copies(step, replica=False)[RANKS_PER_NODE // 2 :])

    def receive(self, step: int, home: "Agent") -> None:
        """Report the replicas that came from another node."""
        self._report(home.copies(step, replica=True))

    def sample(self) -> None:
        """Send a batch of samples."""
        batch = fleet_pb2.SampleBatch(
            schema=SCHEMA, first=self._now(), interval_ns=10**9, rows=_ROWS
        )
        self.say(self, fleet_pb2.AgentMessage(samples=batch))

    def lose_ranks(self) -> None:
        """Tell that all ranks here died."""
        for rank in range(self.first_rank, self.first_rank + RANKS_PER_NODE):
            died = fleet_pb2.RankExited(
                generation=self.generation,
                rank=rank,
                exit_code=1,
                at_boot_ns=_boot_ns(),
                last_line="NCCL error: unhandled system error",
                kind="collective",
            )
            self._record(rank_exited=died)

    def copies(self, step: int, *, replica: bool) -> list[fleet_pb2.VaultCopy]:
        """Return the copies of what the ranks of this node wrote at a step."""
        ranks = range(self.first_rank, self.first_rank + RANKS_PER_NODE)
        return [
            fleet_pb2.VaultCopy(
                generation=self.generation,
                rank=rank,
                step=step,
                replica=replica,
                root_hash=_hash(rank, step),
                size_bytes=_GIB,
                layout=_hash(rank),
            )
            for rank in ranks
        ]

    def _report(
        self,
        new: Sequence[fleet_pb2.VaultCopy],
        gone: Sequence[fleet_pb2.VaultCopy] = (),
    ) -> None:
        """Report a change of the copies, or all of them the first time on a stream."""
        freed = {id(copy) for copy in gone}
        self._told = [copy for copy in self._told if id(copy) not in freed] + list(new)
        report = fleet_pb2.VaultReport(
            job=JOB,
            lineage_id=self.job_id,
            settled_generation=self._settled,
            change=self._reported,
            copies=new if self._reported else self._told,
            gone=gone if self._reported else (),
        )
        self._reported = bool(self._told)
        self.say(self, fleet_pb2.AgentMessage(vault=report))

    def _record(self, **body: Any) -> None:  # noqa: ANN401 - any body of a record
        self.sequence += 1
        message = fleet_pb2.AgentMessage(
            record=fleet_pb2.Record(
                sequence=self.sequence, stamp=self._now(), job=self.job_id or JOB, **body
            )
        )
        self.say(self, message)

    def _now(self) -> fleet_pb2.Stamp:
        self._stamp.boot_id, self._stamp.boot_ns = self._boot_id, _boot_ns()
        self._stamp.wall_ns = time.time_ns()
        return self._stamp

    # --- what it answers -------------------------------------------------------------------------

    def take(self, message: fleet_pb2.ControllerMessage) -> str:
        """Take a message; return its kind."""
        kind = message.WhichOneof("body") or ""
        if kind == "ack":
            self.acknowledged = message.ack.sequence
        elif kind == "welcome":
            self._begin()
        elif kind == "time_request":
            reply = fleet_pb2.TimeReply(sent_ns=message.time_request.sent_ns, stamp=self._now())
            self.say(self, fleet_pb2.AgentMessage(time_reply=reply))
        elif kind == "ping":
            pong = fleet_pb2.Pong(ping_id=message.ping.ping_id)
            self.say(self, fleet_pb2.AgentMessage(pong=pong))
        elif kind == "vault":
            self.target = message.vault.replica_target
            if message.vault.HasField("recoverable_step"):
                self.recoverable = message.vault.recoverable_step
        elif kind == "order":
            self._obey(message.order)
        return kind

    def _begin(self) -> None:
        """Say what an agent says at the beginning of each stream."""
        self.welcomed, self.acknowledged = True, self.sequence
        if self.generation:
            self._report([])
        lines = [
            fleet_pb2.KernelMessage(stamp=self._now(), level=4, text="mlx5_core: link up")
            for _ in range(_KERNEL_LINES)
        ]
        self.say(self, fleet_pb2.AgentMessage(kernel=fleet_pb2.KernelMessages(lines=lines)))

    def _obey(self, order: fleet_pb2.Order) -> None:
        kind = order.WhichOneof("body")
        if kind == "run_check":
            done = fleet_pb2.CheckFinished(order_id=order.order_id, passed=True, message="fine")
            self._record(check_finished=done)
        elif kind == "start_generation" and order.start_generation.generation > self.generation:
            self._start(order.start_generation)
        elif kind == "stop_generation" and order.stop_generation.generation > self._settled:
            self._settled = order.stop_generation.generation
            stopped = fleet_pb2.GenerationStopped(
                generation=self._settled, at_boot_ns=_boot_ns(), free_port=29500
            )
            self._record(generation_stopped=stopped)
            self._report([])

    def _start(self, order: fleet_pb2.StartGeneration) -> None:
        self.generation, self.job_id = order.generation, order.job_id
        self.first_rank = order.first_rank
        for phase in (
            fleet_pb2.PHASE_STARTED, fleet_pb2.PHASE_ATTACHED, fleet_pb2.PHASE_RESTORED
        ):  # fmt: skip
            reached = fleet_pb2.PhaseReached(
                generation=self.generation, phase=phase, at_boot_ns=_boot_ns()
            )
            self._record(phase_reached=reached)
