"""Snapshot messages: what a training process asks to save its state and to restore it."""

from dataclasses import dataclass

from everstep_common import quantities as q

# --- trainer to agent ----------------------------------------------------------------------------


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


# --- agent to trainer ----------------------------------------------------------------------------


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
