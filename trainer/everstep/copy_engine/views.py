"""Interfaces of a state to the copy engine: captures, shard views, restorations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from everstep.copy_engine.memory import Copy
from everstep_common.rank_messages import Entry

# What a name in the state stands for: an array (buffer protocol, DLPack, a torch tensor), a
# callable that returns one, for arrays that the training loop replaces, an object with state_dict()
# and load_state_dict(), or a dictionary or list of what may be in such a state_dict().
Part = object | Callable[[], object]
State = Mapping[str, Part]

# A page: descriptors can be mapped from an entry's offset on, and copies start aligned.
ALIGNMENT_BYTES = 4096


class StateError(TypeError):
    """A part of the state cannot be saved or restored as it is; the sentence names it and why."""


class RestoreError(RuntimeError):
    """The state of the plan's step cannot be had: exit, do not train from scratch unnoticed."""


# What to do about a step that was saved by another model.
OTHER_MODEL = (
    "; restore it with the model and the options that saved it, or begin a new job, under another"
    " name or with --fresh"
)


class MissingError(RestoreError):
    """What is described does not hold all of the state: have every rank's shards described."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard's memory for the time of one copy; it keeps the buffer alive."""

    name: str
    # A dtype of safetensors ("F32", "BF16" …), or the buffer's own word for another one.
    format: str
    shape: tuple[int, ...]
    size_bytes: int
    address: int
    keep: object
    # The tensor that it is a part of, where it begins there and that tensor's shape; see Entry.
    tensor: str = ""
    begins: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    # The torch.Tensor, when ``address`` lies on a CUDA device.
    cuda: object | None = None


@dataclass(frozen=True, slots=True)
class DescribedState:
    """The shards of the state after ``step``, each once; offsets mean nothing here."""

    step: int
    entries: tuple[Entry, ...]


class Copies(Protocol):
    """Copier of memory, whatever it uses."""

    def copy(self, copies: Sequence[Copy], /) -> None:
        """Return when every byte is copied."""
        ...


# Shards of the vault by name: what they are, and where they lie in this process's memory.
Found = Mapping[str, tuple[Entry, int]]


class Restoration(Protocol):
    """One stage of a restore. `fill` changes nothing when it raises; `finish` comes after it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the shards to ask for."""
        ...

    def fill(self, found: Found, copier: Copies) -> None:
        """Check that every shard is there and fits, then copy. Raises RestoreError, StateError."""
        ...

    def finish(self) -> "Restoration | None":
        """Take what was filled, while the memory of ``found`` is still there.

        Returns what to ask for next, once the memory is free; None: the state is whole. Raises
        MissingError as `Capture.targets` does, before anything of the state has changed.
        """
        ...


@runtime_checkable
class Capture(Protocol):
    """View of a state as shards, which can be taken again and again."""

    @property
    def needs_description(self) -> bool:
        """Whether `targets` wants to know the shards of the step; else it takes ()."""
        ...

    def views(self) -> tuple[ShardView, ...]:
        """Return the memory of every shard as it is now: references, no copies. Raises StateError.

        To be called from the training thread, between two steps.
        """
        ...

    def targets(self, described: tuple[Entry, ...]) -> Restoration:
        """Return what to ask for and where it goes. Raises StateError, RestoreError.

        Raises MissingError when ``described`` lacks some of it: with this rank's own copy
        described, that means to begin again with everyone's.
        """
        ...


@runtime_checkable
class Growing(Protocol):
    """Capture of a state that grows in the first step."""

    def bytes_ahead(self) -> int | None:
        """Return how large it will be then; None: that is not known. Raises StateError."""
        ...


def entry_of(view: ShardView, offset_bytes: int) -> Entry:
    """Return the description of a shard at this offset of a slot, for the agent."""
    return Entry(
        view.name,
        offset_bytes,
        view.size_bytes,
        view.format,
        view.shape,
        view.tensor,
        view.begins,
        view.whole,
    )


def offsets(shards: Sequence[ShardView]) -> tuple[tuple[int, ...], int]:
    """Return where each shard begins in a slot, and how many bytes the slot needs."""
    at = 0
    begins = []
    for shard in shards:
        begins.append(at)
        at += -(-shard.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(begins), max(at, ALIGNMENT_BYTES)
