"""What a launcher says to the agent of its node, and what it is told."""

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
    # Which job of the name it is of, as it was told (see Identified); 0: it was not told yet; None:
    # it is of a version that does not understand that.
    job_id: int | None = None
    # It understands Renew and Lesson.
    learns: bool = False
    # So many nodes hold one copy of the model together.
    replica_nodes: int = 1
    # What it starts, in words that differ where the programs do.
    program: str = ""


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


@dataclass(frozen=True, slots=True)
class StepSeen:
    """The output of a rank says that the job has completed a step."""

    generation: int
    step: int
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
    # Where the core dump is, or the command that shows it, where the kernel's settings tell it.
    core_file: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """No process of the generation (or an older one) is left on this node."""

    generation: int
    free_port: int
    at_boot_ns: int
    # Killed, but held in the kernel by a device or a file system: nobody waits for these.
    abandoned: tuple[int, ...] = ()


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
class Identified:
    """Which job of the name this is; said again in each Join, so that a late one is told so."""

    job_id: int


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
class Renew:
    """Use no process that was made ahead for the Start that follows: code may have changed since.

    A message of its own, for a launcher of an older version would not understand it in Start.
    """


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
