"""Rank report: what is known of one rank of a job that stands still, reduced to 1 to 3 KB.

Whoever reads a rank makes one (from a dump, a worker server, /proc); the judge compares all of a
job's. Every text, list and number is bounded, for what it tells comes from the job. A field that
nobody could read is None or empty, and `blind` says why.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items, Opaque, Text
from everstep_common.hangs.reports.recent_collectives import RecentCollectives

# Sequence ids count collectives of a group from 1; 0: none yet.
Sequence = Annotated[int, Integer(0, 2**63 - 1)]
# By the node's wall clock, which orders nothing across nodes; 0: not known.
WallNs = Annotated[int, Integer(0, 2**63 - 1, unit="ns")]
Milliseconds = Annotated[int, Integer(0, 2**53, unit="ms")]
# "0-7", "1-13:4" (from 1 to 13, every fourth), "0-3,9", or what stands for them: see `members`.
MembersText = Annotated[str, Opaque(1, 400, "the members of a group")]

# A stack frame as "train.py:120 forward"; innermost first.
Frame = Annotated[str, Text(120)]
Frames = Annotated[tuple[Frame, ...], Items(4)]
StackFrames = Annotated[tuple[Frame, ...], Items(24)]
# Each tensor's size and type, inputs before outputs: "4x2 BFloat16, 1 Long -> 8x2 BFloat16"; only
# the inputs where both are equal.
Shapes = Annotated[str, Text(200)]

# The most of each that one report holds; what is left out is counted or told.
GROUPS_MAX = 64
PENDING_MAX = 8
LIBRARIES_MAX = 24
BLIND_MAX = 16
PAUSED = "pause: "
RAS_LINES_MAX = 8
DEVICES_MAX = 64


class OperationState(Enum):
    """Progress of an operation: the states of torch's Flight Recorder."""

    # In the queue of the process, or of its GPU. gloo's never leave this state while they run.
    SCHEDULED = "scheduled"
    # Its kernel runs.
    STARTED = "started"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective or point-to-point operation that a rank enqueued."""

    # Among the collectives of its group; for point-to-point among those of this rank and group.
    sequence: Sequence
    # As torch calls it, without the backend: "all_reduce", "_all_gather_base", "send", "recv".
    name: q.Word
    shapes: Shapes
    state: OperationState
    created_ns: WallNs = 0
    # Where the program called it.
    frames: Frames = ()
    # The other end of a point-to-point operation, as a rank of the job; None for a collective.
    peer: q.Rank | None = None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A process group as one of its members knows it.

    Two ranks speak of the same group when description, members and ordinal are equal: torch's
    numbers and names of groups are local to each process.
    """

    description: q.Title
    members: MembersText
    # How many members it has; 0: not known. Where they are not named, its reports tell who is one.
    size: q.Ranks
    # The last collective that this rank has enqueued, and the last that has completed here; None
    # where the recorder does not tell.
    enqueued: Sequence | None
    completed: Sequence | None
    # The same of its point-to-point operations, which this rank counts for itself; None: it has
    # recorded none, and then the numbers above may be theirs if a peer has some. gloo counts them
    # with each collective, and tells neither which they are nor whether they complete.
    p2p_enqueued: Sequence | None = None
    p2p_completed: Sequence | None = None
    # How many of the recorded operations have not completed; the first of them, oldest first.
    pending_count: q.Count = 0
    pending: Annotated[tuple[Operation, ...], Items(PENDING_MAX)] = ()
    # The last completed collective, "all_reduce 1024 Float"; "" where that is not recorded.
    done: q.Title = ""
    # Which one it is of several with the same description and members, by their age in the process.
    ordinal: q.Count = 0
    # When its newest collectives were enqueued; only where a job that steps is looked at.
    recent: RecentCollectives | None = None

    def problems(self) -> list[str]:
        """Return what two fields make impossible together."""
        if self.pending_count < len(self.pending):
            return ["pending_count: below the number of operations that are listed"]
        return []


class ProcessState(Enum):
    """State of a process: the letters of /proc/PID/stat, put together by what they mean."""

    # Nobody looked, or could.
    UNKNOWN = "unknown"
    RUNNING = "running"
    SLEEPING = "sleeping"
    # D: in the kernel, where no signal reaches it.
    UNINTERRUPTIBLE = "uninterruptible"
    # T or t: by SIGSTOP, a debugger, a frozen cgroup.
    STOPPED = "stopped"
    # Z or X, or gone.
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProcessEnding:
    """How a rank's process ended, as its launcher saw it."""

    # Meaningful when signal is 0.
    exit_code: q.ExitCode
    signal: q.Signal
    # When, on the clock of the boot of its node; 0: not known.
    at_boot_ns: q.BootNs = 0
    # The kind of its failure, as `everstep_common.failures` classifies it, and its words.
    kind: q.Word = ""
    text: q.Line = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A rank's process as its node sees it from outside; None and "": not asked or no answer."""

    state: ProcessState = ProcessState.UNKNOWN
    # For how long it has been seen in this state without a break.
    state_for_ms: Milliseconds = 0
    # The function of the kernel in which its main thread waits; the file that its system call is
    # about, and the mount that this is on ("nfs4 server:/export at /data").
    wchan: q.Word = ""
    file: q.Line = ""
    mount: q.Line = ""
    # PCI addresses of the accelerators that it has open; None: that was not read.
    devices: Annotated[tuple[q.Word, ...], Items(DEVICES_MAX)] | None = None
    ending: ProcessEnding | None = None
    # Whether torch's worker server answered a ping, which needs no GIL.
    answers_ping: bool | None = None
    # Whether something that needs the GIL got no answer while a ping did.
    gil_held: bool | None = None
    # For how long it is known to be held; 0: that was not seen.
    gil_held_ms: Milliseconds = 0
    # Whether the main thread's native frames, or where those cannot be read its kernel stack and
    # instruction pointer, were the same in two looks, and its user time did not grow.
    native_stack_unchanged: bool | None = None
    # User and system time of the process between two looks, in percent of one core.
    cpu_percent: Annotated[int, Integer(0, 100_000, unit="%")] | None = None
    # What it has written since the look before, or within this look if it is the first: to files,
    # and to the sockets by which gloo sends.
    written_bytes: q.Count | None = None
    # Its page faults since then: a loop that only computes has none.
    page_faults: q.Count | None = None
    # Frames of the main thread, innermost first: names and lines, never values.
    python_stack: StackFrames = ()
    # Where it sleeps: native frames, or only the libraries that they are in.
    native_stack: StackFrames = ()


class EvidenceSource(Enum):
    """Where facts about a rank come from."""

    FLIGHT_RECORDER = "flight_recorder"
    WORKER_SERVER = "worker_server"
    PROCESS_STATE = "process_state"
    GIL = "gil"
    PYTHON_STACK = "python_stack"
    NATIVE_STACK = "native_stack"
    LIBRARIES = "libraries"
    NCCL_RAS = "nccl_ras"
    # What the rank tells does not fit together, or is somebody else's.
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Blind:
    """A source that told nothing of a rank, and why, with the setting that would mend it."""

    source: EvidenceSource
    reason: q.Line


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the process has mapped, by the name that the table of known faults uses."""

    # "torch", "nccl", "cuda_driver", "cudart", "gloo", "nvshmem", "deepep", "ofi_nccl" …; and of
    # its node "machine" (aarch64) and "kernel".
    name: q.Word
    # As it says itself: "2.27.3"; "" where it is mapped and does not say.
    version: q.Word


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHangReport:
    """What is known of one rank of a job that stands still."""

    rank: q.Rank
    # 0: not known.
    world_size: q.Ranks = 0
    node: q.Line = ""
    pid: q.Pid = 0
    # When this was read, by the node's wall clock.
    taken_ns: WallNs = 0
    # The schema of the Flight Recorder, "2.10", and "nccl" or "gloo"; "" without a recorder.
    schema: q.Word = ""
    backend: q.Word = ""
    libraries: Annotated[tuple[Library, ...], Items(LIBRARIES_MAX)] = ()
    groups: Annotated[tuple[GroupReport, ...], Items(GROUPS_MAX)] = ()
    # Groups that this report has no room for, which had no operation pending.
    groups_left_out: q.Count = 0
    # After which the first of its groups gives up and ends the process; 0: not known.
    timeout_ms: Milliseconds = 0
    # What it did of late that is not what it did each time before, in words; "" where nothing is.
    departure: q.Line = ""
    process: ProcessFacts = ProcessFacts()
    # The last step that the rank completed, and the phase or pause in which it is, by the SDK; a
    # pause begins with `PAUSED`, also where its stack shows one.
    step: q.ToldStep | None = None
    phase: q.Word = ""
    blind: Annotated[tuple[Blind, ...], Items(BLIND_MAX)] = ()
    # What NCCL RAS told when it was asked on this rank's node: of other ranks too.
    ras: Annotated[tuple[q.Line, ...], Items(RAS_LINES_MAX)] = ()
