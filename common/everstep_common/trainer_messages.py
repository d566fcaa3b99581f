"""What a job's launcher and training processes say to the agent of their node, and its answers.

Launcher:  Join → Joined | Refused, then Start / Stop / End / Notice at any time.
Trainer:   Attach → Attached | Refused, Describe → Described | NothingToRestore | RestoreFailed,
           Restore → Restored | NothingToRestore | RestoreFailed, Reserve → Reserved | Refused,
           Begin → Slot | Skip | Unplanned, Commit → Committed | Refused, AskSkipped → Skipped;
           Progress and Rollback are not answered.
Times are CLOCK_BOOTTIME nanoseconds of the node; steps count from 0.
"""

from dataclasses import dataclass, field

# --- launcher to agent ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where and how often the state is brought to storage: a folder or ``s3://bucket/prefix``."""

    path: str
    every_steps: int = 0
    every_s: float = 0.0
    # Whole steps that are kept, at least 2.
    keep: int = 2
    # What lets the user into a bucket (AWS_…); never written anywhere.
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A launcher asks to take part in a job; sent again after a reconnect, with what still runs."""

    protocol: int
    version: str
    job: str
    token: str
    nodes_min: int
    nodes_max: int
    processes_per_node: int
    reform: bool
    restarts_max: int
    free_port: int
    running_generation: int = 0
    storage: Storage | None = None
    # Memory that each rank's state will need, to be refused before anything starts; 0: unknown.
    snapshot_bytes: int = 0
    # Least and most steps from one snapshot to the next; 0 leaves it to the controller.
    snapshot_every_min: int = 0
    snapshot_every_max: int = 0
    # Begin anew, whatever there is of a job of this name before.
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A running training process."""

    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class Started:
    """All local processes of the generation are running."""

    generation: int
    processes: tuple[RankProcess, ...]
    at_boot_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A training process ended with an error, or by a signal, before it was told to stop."""

    generation: int
    rank: int
    exit_code: int
    signal: int
    at_boot_ns: int
    last_line: str
    # What `everstep_common.failures` makes of its end, and its last exception in one line.
    kind: str = ""
    exception: str = ""
    core_dumped: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """No process of the generation (or an older one) is left on this node."""

    generation: int
    free_port: int
    at_boot_ns: int
    # Killed, but held in the kernel by a device or a file system: nobody waits for these.
    abandoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepSeen:
    """The output of a rank says that the job has completed a step."""

    generation: int
    step: int
    at_boot_ns: int


@dataclass(frozen=True, slots=True)
class Standbys:
    """The warm standbys here: how many wait, how many are to come, what they take together."""

    ready: int = 0
    making: int = 0
    memory_bytes: int = 0
    # Why there are none any more; "": there may be some.
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """All local processes ended with exit code 0."""

    generation: int
    at_boot_ns: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The launcher goes away on its user's word (Ctrl-C, SIGTERM): the job shall end."""

    reason: str


# --- agent to launcher ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The agent has passed the launcher on to the controller (or keeps it until it is back)."""

    node: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No; one sentence why, which names the next step."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start the processes of a generation."""

    generation: int
    node_rank: int
    node_count: int
    first_rank: int
    processes: int
    world_size: int
    master_address: str
    master_port: int
    restore_step: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the processes of this generation and of older ones; answer with Stopped."""

    generation: int
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """The job is over: the launcher exits, with 0 when it succeeded."""

    succeeded: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """All local ranks have completed a step: what would have disturbed their start may begin."""

    generation: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the terminal ("waiting as a spare")."""

    text: str


# --- trainer to agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """First message of a training process."""

    protocol: int
    version: str
    job: str
    token: str
    generation: int
    rank: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Ask for the state of the plan's restore step; no names ask for every shard."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """Ask which shards the plan's restore step has: of this rank's own copy, or of ``everyone``."""

    everyone: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """This process has its state (restored, or its own start) and begins to train."""

    at_boot_ns: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Ask for slots of at least this many bytes."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Ask for a slot to copy the state after ``step`` into."""

    step: int
    # How long the answer may wait for a free slot: 0 skips, None leaves it to the agent.
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One logical shard inside a slot; ``name`` is unique in the job's state."""

    name: str
    offset_bytes: int
    size_bytes: int
    # A dtype of safetensors ("F32", "BF16", "U8" …), or the trainer's own word for another one.
    format: str = ""
    shape: tuple[int, ...] = ()
    # The tensor that it is a part of; "": the shard is a whole tensor of this name.
    tensor: str = ""
    # Where it begins in the whole tensor, and the whole tensor's shape; () for a whole tensor.
    begins: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    # xxh3-128 that the trainer took of its own memory before the copy; b"" when it took none.
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Commit:
    """The copy is complete."""

    step: int
    slot: int
    epoch: int
    entries: tuple[Entry, ...]
    # The entries are those of the last copy that was committed on this connection; none are sent.
    as_before: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """This rank completed a step; ``stall_ns`` is how long it stood still for the snapshot."""

    step: int
    at_boot_ns: int
    stall_ns: int


@dataclass(frozen=True, slots=True)
class DataRange:
    """Batches of the job's data, by their numbers; both ends belong to it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The state after ``step`` is bad: the job shall go on from an older one. Not answered."""

    step: int
    reason: str
    at_boot_ns: int
    # Data that is left out from then on.
    skip: DataRange | None = None


@dataclass(frozen=True, slots=True)
class AskSkipped:
    """Ask which data this generation leaves out."""


# --- agent to trainer ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attached:
    """The process belongs to the running generation."""

    node: str
    restore_step: int | None


@dataclass(frozen=True, slots=True)
class RestoredCopy:
    """One verified read-only descriptor of the answer, and the shards to take from it."""

    entries: tuple[Entry, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The state after ``step``; descriptor i of the frame is read-only memory of ``copies[i]``."""

    step: int
    copies: tuple[RestoredCopy, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """The shards of the state after ``step``, each once; offsets mean nothing here."""

    step: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class NothingToRestore:
    """The plan starts from the beginning."""


@dataclass(frozen=True, slots=True)
class RestoreFailed:
    """No verified copy of some shard could be reached; the process should exit with an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """Descriptor i of the frame is slot i: sealed, pre-faulted memory of ``slot_bytes``."""

    slots: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class Slot:
    """Copy into this slot, then commit with this epoch."""

    slot: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Skip:
    """No slot is free; this step is not snapshotted. It is counted and shown."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unplanned:
    """This step is not one of those that are snapshotted; the next one is ``next_step``."""

    next_step: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Data that is left out, in order and apart."""

    ranges: tuple[DataRange, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The agent owns the copy now."""

    step: int


FROM_LAUNCHER = (Join, Started, StepSeen, Exited, Stopped, Standbys, Finished, Leave)
TO_LAUNCHER = (Joined, Refused, Start, Stop, End, Settled, Notice)
FROM_TRAINER = (
    Attach,
    Describe,
    Restore,
    Ready,
    Reserve,
    Begin,
    Commit,
    Progress,
    Rollback,
    AskSkipped,
)
TO_TRAINER = (
    Attached,
    Refused,
    Described,
    Restored,
    NothingToRestore,
    RestoreFailed,
    Reserved,
    Slot,
    Skip,
    Unplanned,
    Committed,
    Skipped,
)
