"""Plain facts that events carry and the state keeps."""

from dataclasses import dataclass
from enum import Enum

from everstep_common.judging.findings import Mode


@dataclass(frozen=True, slots=True)
class Origin:
    """The record of an agent's outbox that an event was made from; makes redelivery harmless."""

    node: str
    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted disk; sizes in bytes."""

    device: str
    mount: str
    filesystem: str
    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface or an InfiniBand port."""

    name: str
    kind: str
    up: bool
    speed_bits_per_s: int
    address: str
    pci_address: str = ""
    numa_node: int | None = None
    firmware: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator."""

    uuid: str
    name: str
    vendor: str
    pci_address: str
    memory_bytes: int
    driver: str
    numa_node: int | None = None
    # The interfaces nearest to it, and how near: "PIX", "PXB", "PHB", "NODE" or "SYS".
    nearest_interfaces: tuple[str, ...] = ()
    nearest_distance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a node consists of."""

    kernel: str = ""
    cpu_model: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """What an agent said of one job when it connected."""

    job: str
    generation: int
    launcher: bool
    # The plan that its newest generation comes from; 0 when the agent did not say.
    planned_generation: int = 0
    # Of its launcher; 0 where there is none, or it is not known.
    job_id: int = 0


class Phase(Enum):
    """How far the processes of a generation have come on one node, in this order."""

    STARTED = "started"
    ATTACHED = "attached"
    RESTORED = "restored"


# Not frozen, only hashed as if: one plan makes 33,000, each in a third of the time.
@dataclass(slots=True, unsafe_hash=True)
class ShardSource:
    """One verified copy that holds some part of the state to restore. Never changed."""

    node: str
    bulk_address: str
    generation: int
    rank: int
    step: int
    root_hash: str
    size_bytes: int
    layout: str = ""
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """Steps up to ``through_step`` of a generation belong to the job's current branch.

    None means that the generation is the newest one: all its steps do. A step is whole when copies
    have all ``layouts``, or when every rank of the world has one.
    """

    generation: int
    through_step: int | None
    world_size: int
    layouts: tuple[str, ...] = ()
    # Of journals that knew parts by the names of their shards: there was a snapshot.
    shards: tuple[str, ...] = ()

    def has(self, generation: int, step: int) -> bool:
        """Return whether a step is on the branch here."""
        within = self.through_step is None or step <= self.through_step
        return generation == self.generation and within


# First and last number of batches of a job's data.
DataRange = tuple[int, int]
# Generation and step: what a state is called.
StepKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Storage:
    """Where and how often a job's state is brought to storage; 0 means not by that."""

    path: str
    every_steps: int = 0
    every_ns: int = 0
    keep: int = 2


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A whole step in a job's storage folder."""

    generation: int
    step: int
    world_size: int
    manifest_hash: str
    size_bytes: int
    # Data that the job had left out by then.
    skipped: tuple[DataRange, ...] = ()

    @property
    def key(self) -> StepKey:
        """Return what the state is called."""
        return (self.generation, self.step)


@dataclass(frozen=True, slots=True)
class Past:
    """The job that had a job's name before it, and whose state that goes on from."""

    ended_ns: int
    # "failed", as in: the job that failed.
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator configured of the core; journaled, so that replay decides the same."""

    mode: Mode = Mode.ADVISE
    # Rollout mode of single conditions ("XidFatal"), where it differs from ``mode``.
    condition_modes: tuple[tuple[str, Mode], ...] = ()
    # Budget of working nodes that automation may isolate: the larger of a number and a share.
    isolation_budget_nodes: int = 2
    isolation_budget_ratio: float = 0.02
    # A closed stream alone makes a node lost after this long (DESIGN.md: a node without peers).
    stream_silence_ns: int = 15_000_000_000
    # How long the peers that were asked may take to confirm a silence.
    confirm_ns: int = 1_500_000_000
    # Reconnection grace after the controller itself was away.
    restart_grace_ns: int = 30_000_000_000
    # If more than this share of the fleet is silent at once, the controller suspects itself …
    self_suspicion_ratio: float = 0.5
    # … for this long, after which it believes what it sees.
    self_suspicion_ns: int = 60_000_000_000
    # How long a job may wait for its wanted nodes once it has its fewest.
    forming_ns: int = 10_000_000_000
    # How long processes may take after SIGTERM when a generation is stopped.
    stop_grace_ns: int = 0
    # How long a repaired or returned node stays on probation.
    probation_ns: int = 600_000_000_000
    # How long a recovery listens to agents before it believes that all have spoken.
    recovery_ns: int = 30_000_000_000
    # When a node that failed its check, and may not be isolated for it, is checked again.
    recheck_ns: int = 30_000_000_000
    # How often a node is checked while it waits as a spare; 0, as in old journals: never.
    spare_check_ns: int = 0
    # A job that crashes again this soon after it was restored, twice, goes to an older step.
    probation_steps: int = 10
    # Findings this long before or after a fault may be its cause …
    evidence_ns: int = 60_000_000_000
    # … and a second unexplained death on a node within this long has it replaced and checked.
    strike_window_ns: int = 86_400_000_000_000
    # How long the end of a job waits for its last step to be in storage.
    breakpoint_ns: int = 120_000_000_000
    # How long nodes keep what they have of a job that failed, and a job without launchers waits.
    memory_kept_ns: int = 1_800_000_000_000
    # Fewest and most steps from one snapshot to the next; 0 leaves the most to the cost alone.
    snapshot_every_min: int = 1
    snapshot_every_max: int = 0
    # What costs less than this share of a step is done at every step; 0 counts every cost.
    snapshot_cost_ignored_ratio: float = 0.005
    # The most training that one fault may take along, whatever the formula says; 0 for no limit.
    snapshot_gap_ns_max: int = 60_000_000_000
    # How often an agent may restart a job in place while the controller is away; 0 in old journals.
    own_restarts: int = 0
    # How long a planned restart waits for its last step to be recoverable.
    planned_ns: int = 300_000_000_000
    # Nodes wait this long for a job that lacks some before it grows, and no more often than this.
    growth_wait_ns: int = 60_000_000_000
    growth_every_ns: int = 600_000_000_000
    # Nodes are drained this long before a maintenance window, at least; what has no place elsewhere
    # is stopped this long before it; and a window lasts this long, at least.
    maintenance_lead_ns: int = 600_000_000_000
    maintenance_stop_ns: int = 120_000_000_000
    maintenance_min_ns: int = 60_000_000_000
    # No step for this long is shown, and after the other time a fault; 0 in old journals: neither.
    stalled_ns: int = 0
    stalled_restart_ns: int = 0
    # How long an ended job is kept for `everstep job`.
    job_retention_ns: int = 7 * 86_400_000_000_000


class InjectionState(Enum):
    """Where a fault is that was ordered on purpose."""

    ORDERED = "ordered"
    ACTIVE = "active"
    REFUSED = "refused"
    ENDED = "ended"
