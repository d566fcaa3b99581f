"""Rank messages: between a training process and the agent of its node.

Attach → Attached | Refused,
Describe → DescribedPart | NothingToRestore | RestoreFailed,
Restore → RestoredCopies | NothingToRestore | RestoreFailed,
Reserve → Reserved | Refused,
Begin → Slot | Skip | Unplanned, Commit → Committed | CommittedAhead | Refused,
AskSkipped → Skipped;
Progress, Paused and the reports of a rank (RankReport) are not answered.
Before any answer to a question of an attached process: Pending → Await, again and again.
All that a process of a job exchanges is here and nothing else: each module that a rank imports
makes every restart longer. Those of launchers: `everstep_common.launcher_messages`.
"""

import typing
from dataclasses import dataclass

from everstep_common import quantities as q

# --- reports, which the agent passes on to the controller as they are -----------------------------


@dataclass(frozen=True, slots=True, order=True)
class DataRange:
    """Batches of the job's data, by their numbers; both ends belong to it."""

    first: q.Batch
    last: q.Batch

    def problems(self) -> list[str]:
        """Say what is wrong with it."""
        if self.first <= self.last:
            return []
        return [f"data {self.first} to {self.last} is no range: name its first batch first"]

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.first < self.last else f"{self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """Report of a training process itself: its agent passes it on, and sees to these fields."""

    generation: q.Generation = 0
    rank: q.Rank = 0
    at_boot_ns: q.BootNs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAsked(RankReport):
    """A rank says that the state after a step is bad: the job shall go on from an older one."""

    step: q.ToldStep
    reason: q.Line
    # Data that is left out from then on.
    skip: DataRange | None = None


# All of them, each in the list of what is reported of a job; typing knows no union of one.
SentByRank = RollbackAsked
RANK_REPORTS: tuple[type[RankReport], ...] = typing.get_args(SentByRank) or (SentByRank,)

# --- a process and its progress: trainer to agent -------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """First message of a training process."""

    protocol: int
    version: q.Title
    job: q.JobName
    token: q.Token
    generation: q.Generation
    rank: q.Rank


@dataclass(frozen=True, slots=True)
class Ready:
    """This process has its state (restored, or its own start) and begins to train."""

    at_boot_ns: q.BootNs


@dataclass(frozen=True, slots=True)
class Progress:
    """This rank completed a step; ``stall_ns`` is how long it stood still for the snapshot."""

    step: q.ToldStep
    at_boot_ns: q.BootNs
    stall_ns: q.DurationNs
    # How many steps of this process were not saved, for whatever reason.
    unsaved: q.Count = 0


@dataclass(frozen=True, slots=True)
class Paused:
    """This rank begins what is no step, an evaluation say; without a name it goes on training."""

    name: q.Word
    at_boot_ns: q.BootNs


@dataclass(frozen=True, slots=True)
class AskSkipped:
    """Ask which data this generation leaves out."""


# --- agent to trainer -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """No; one sentence why, which names the next step."""

    reason: str


@dataclass(frozen=True, slots=True)
class RefusedForNow:
    """Not now: another launcher has the place. Who asks again in a moment may be let in.

    Apart from Refused, which launchers of every version understand.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The process belongs to the running generation."""

    node: str
    restore_step: int | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Data that is left out, in order and apart."""

    ranges: tuple[DataRange, ...]


# --- snapshots: trainer to agent ------------------------------------------------------------------


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
class Describe:
    """Ask which shards the plan's restore step has: of this rank's own copy, or of ``everyone``."""

    everyone: bool = False
    # The number of the first shard that is asked for, by name: a message has room for some of them.
    begin: q.Count = 0


@dataclass(frozen=True, slots=True)
class Restore:
    """Ask for the state of the plan's restore step; no names ask for every shard."""

    names: tuple[str, ...]
    # The number of the first copy that is asked for: a message has room for some of them only.
    begin: q.Count = 0


@dataclass(frozen=True, slots=True)
class Reserve:
    """Ask for slots of at least this many bytes."""

    size_bytes: q.SizeBytes


@dataclass(frozen=True, slots=True)
class Begin:
    """Ask for a slot to copy the state after ``step`` into."""

    step: q.ToldStep
    # How long the answer may wait for a free slot: 0 skips, None leaves it to the agent.
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The copy is complete."""

    step: q.ToldStep
    slot: q.Count
    epoch: q.Step
    entries: tuple[Entry, ...]
    # The entries are the same as in the last Commit on this connection, and not sent again.
    as_before: bool = False
    # The answer may grant the slot of a later step (CommittedAhead).
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Await:
    """Wait on, after Pending."""


# --- agent to trainer -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pending:
    """The answer takes longer; it follows an Await, or the next Pending does.

    By it a rank tells an agent that works, or waits for a free slot, from one that stands still.
    """


@dataclass(frozen=True, slots=True)
class DescribedPart:
    """Some of the shards of the state after ``step``, each once, by name; ``left`` come after.

    Offsets mean nothing here.
    """

    step: int
    entries: tuple[Entry, ...]
    left: int


@dataclass(frozen=True, slots=True)
class RestoredCopy:
    """One verified read-only descriptor of the answer, and the shards to take from it."""

    entries: tuple[Entry, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RestoredCopies:
    """Some copies of the state after ``step``; ``left`` come after these.

    Descriptor i of the frame is read-only memory of ``copies[i]``.
    ``begin`` is the number of the first one: 0 instead of what was asked for on a connection that
    knows nothing of those before. What came of them is worth nothing then.
    """

    step: int
    copies: tuple[RestoredCopy, ...]
    begin: int
    left: int


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
class Committed:
    """The agent owns the copy now."""

    step: int


@dataclass(frozen=True, slots=True)
class CommittedAhead:
    """The agent owns the copy now, and grants a slot for a later step: no Begin is needed for it.

    The slot is being written from now on, until its Commit, the next Begin or Reserve, or the end
    of the connection. The agent may withdraw the grant without a word: then it refuses the Commit.
    """

    step: int
    # The steps that may be copied into it, both included.
    first_step: int
    last_step: int
    slot: int
    epoch: int


FROM_TRAINER = (
    Attach,
    Describe,
    Restore,
    Ready,
    Reserve,
    Begin,
    Commit,
    Progress,
    Paused,
    AskSkipped,
    Await,
    *RANK_REPORTS,
)
TO_TRAINER = (
    Attached,
    Refused,
    DescribedPart,
    RestoredCopies,
    NothingToRestore,
    RestoreFailed,
    Reserved,
    Slot,
    Skip,
    Unplanned,
    Committed,
    CommittedAhead,
    Skipped,
    Pending,
)
# With these the agent passes descriptors of sealed memory; with no other message either way.
CARRIERS_TO_TRAINER = (Reserved, RestoredCopies)
