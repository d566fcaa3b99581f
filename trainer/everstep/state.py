"""The training state as bytes: named shards, each a writable buffer of the training process."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Anything with the buffer protocol that is writable and C-contiguous (a numpy array, a bytearray),
# or a callable that returns it, for arrays that the training loop replaces. Python 3.11 has no type
# for the buffer protocol (PEP 688 came with 3.12).
Shard = object | Callable[[], object]
State = Mapping[str, Shard]

# A page: descriptors can be mapped from an entry's offset on, and copies start aligned.
ALIGNMENT_BYTES = 4096


class StateError(TypeError):
    """A shard cannot be saved as it is; the sentence names the shard and the reason."""


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard's memory for the time of one copy; it keeps the buffer alive."""

    name: str
    format: str
    shape: tuple[int, ...]
    size_bytes: int
    address: int
    keep: object


def views(state: State) -> tuple[ShardView, ...]:
    """Return the memory of every shard, in the mapping's order. Raises StateError."""
    return tuple(_view(name, shard) for name, shard in state.items())


def _view(name: str, shard: Shard) -> ShardView:
    buffer = shard() if callable(shard) else shard
    try:
        described = memoryview(buffer)  # type: ignore[arg-type]  # not a buffer: TypeError, below
    except (TypeError, ValueError, BufferError) as error:
        raise StateError(f"shard {name!r} has no buffer of memory: {error}") from error
    size = described.nbytes
    if described.readonly or not described.c_contiguous:
        raise StateError(
            f"shard {name!r} must be writable and C-contiguous to be restored in place"
        )
    shape = tuple(described.shape or ())
    if size == 0:
        return ShardView(name, described.format, shape, 0, 0, buffer)
    # from_buffer takes every format, also those that memoryview.cast does not know.
    memory = (ctypes.c_ubyte * size).from_buffer(described)
    return ShardView(name, described.format, shape, size, ctypes.addressof(memory), memory)


def offsets(shards: tuple[ShardView, ...]) -> tuple[tuple[int, ...], int]:
    """Return where each shard begins in a slot, and how many bytes the slot needs."""
    at = 0
    begins = []
    for shard in shards:
        begins.append(at)
        at += -(-shard.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(begins), max(at, ALIGNMENT_BYTES)
