"""Rank files: a rank's copy as a file, and back; what is written is what was verified."""

from collections.abc import Callable, Collection, Iterator

import xxhash

from everstep_agent.storage.backends.backend import BackendError, ProgressCallback, StorageBackend
from everstep_agent.storage.formats.records import (
    FileDescription,
    Gap,
    StepKey,
    data_name,
    description_name,
    encode_record,
    open_description,
    seal_description,
)
from everstep_agent.storage.formats.safetensors_header import (
    FileLayout,
    FilePiece,
    lay_out_file,
    pieces_of,
)
from everstep_agent.storage.worker.messages import FillCopy, WriteCopy
from everstep_agent.vault.snapshots.hashing import CHUNK_BYTES, chunk_digests, root_of
from everstep_agent.vault.snapshots.manifest import entries_problem

# What lies between shards is alignment, to a page each. The trainer's library leaves zeros there,
# which are not written; what another program leaves has to fit the description, as hexadecimal.
_GAP_BYTES_PER_SHARD = 4096
_GAP_BYTES_MAX = 16 * 1024 * 1024


def write_copy(
    backend: StorageBackend, wanted: WriteCopy, memory: memoryview, on_progress: ProgressCallback
) -> int:
    """Write a rank's file and its description; return its size, 0 when it is there already.

    Raises OSError and BackendError.
    """
    problem = entries_problem(wanted.entries, wanted.size_bytes)
    if problem:
        raise BackendError(problem)
    known = describe_file(backend, wanted.key, wanted.rank)
    if known is not None and known.root_hash == wanted.root_hash:
        return 0
    about = {"everstep": f"job {wanted.location.job}, {wanted.key}, rank {wanted.rank}"}
    layout = lay_out_file(wanted.entries, about)
    data_hash = xxhash.xxh3_128()
    pieces = _from_memory(layout, memory, data_hash, lambda: _verify(wanted, memory, on_progress))
    name = data_name(wanted.rank)
    backend.write_file(wanted.key, name, pieces, layout.size_bytes, on_progress)
    description = seal_description(
        FileDescription(
            job=wanted.location.job,
            key=wanted.key,
            rank=wanted.rank,
            world_size=wanted.world_size,
            size_bytes=wanted.size_bytes,
            root_hash=wanted.root_hash,
            layout=wanted.layout,
            file_bytes=layout.size_bytes,
            data_begins=len(layout.head),
            data_hash=data_hash.digest(),
            entries=wanted.entries,
            gaps=tuple(_gaps(layout.pieces, memory)),
        )
    )
    backend.write_small(wanted.key, description_name(wanted.rank), encode_record(description))
    return layout.size_bytes


def describe_file(backend: StorageBackend, key: StepKey, rank: int) -> FileDescription | None:
    """Return what a rank's file holds, None when it is not there whole."""
    content = backend.read_small(key, description_name(rank))
    if content is None:
        return None
    description = open_description(content)
    if (description.key, description.rank) != (key, rank):
        raise BackendError(f"the description of rank {rank}, {key}, is one of another")
    if backend.file_size(key, data_name(rank)) != description.file_bytes:
        return None
    return description


def fill_copy(
    backend: StorageBackend, wanted: FillCopy, memory: memoryview, on_progress: ProgressCallback
) -> FileDescription:
    """Read a rank's file into memory, for the caller to verify. Raises OSError and BackendError."""
    description = describe_file(backend, wanted.key, wanted.rank)
    if description is None:
        raise BackendError(f"there is no whole file of rank {wanted.rank}, {wanted.key}")
    if description.root_hash != wanted.root_hash:
        raise BackendError(f"the file of rank {wanted.rank}, {wanted.key}, is of another copy")
    problem = entries_problem(description.entries, description.size_bytes)
    if problem or description.size_bytes > len(memory):
        raise BackendError(problem or "the file is larger than it was said to be")
    buffers = [
        memory[piece.copy_offset : piece.copy_offset + piece.size_bytes]
        for piece in pieces_of(description.entries)
    ]
    backend.read_into(
        wanted.key, data_name(wanted.rank), description.data_begins, buffers, on_progress
    )
    for gap in description.gaps:
        _fill_gap(memory[: description.size_bytes], gap)
    return description


def _from_memory(
    layout: FileLayout, memory: memoryview, data_hash: "xxhash.xxh3_128", verify: Callable[[], None]
) -> Iterator[memoryview]:
    yield memoryview(layout.head)
    for piece in layout.pieces:
        end = piece.copy_offset + piece.size_bytes
        for at in range(piece.copy_offset, end, CHUNK_BYTES):
            chunk = memory[at : min(at + CHUNK_BYTES, end)]
            data_hash.update(chunk)
            yield chunk
    # After the last byte was written, before the file gets its name: finds any change of the memory
    # since it was verified.
    verify()


def _verify(wanted: WriteCopy, memory: memoryview, on_progress: ProgressCallback) -> None:
    digests: list[bytes] = []
    for at in range(0, wanted.size_bytes, CHUNK_BYTES):
        digests += chunk_digests(memory, at, min(at + CHUNK_BYTES, wanted.size_bytes))
        on_progress(0)
    if root_of(digests, wanted.size_bytes) != wanted.root_hash:
        raise BackendError(f"{wanted.key} of rank {wanted.rank} changed after it was verified")


def _gaps(pieces: Collection[FilePiece], memory: memoryview) -> Iterator[Gap]:
    limit = min(_GAP_BYTES_PER_SHARD * len(pieces), _GAP_BYTES_MAX)
    end = total = 0
    for piece in sorted(pieces, key=lambda one: (one.copy_offset, one.size_bytes)):
        content = bytes(memory[end : piece.copy_offset])
        if content.strip(b"\0"):
            total += len(content)
            if total > limit:
                raise BackendError(
                    f"more than {limit} bytes that are not zero lie between the shards"
                )
            yield Gap(end, content)
        end = piece.copy_offset + piece.size_bytes


def _fill_gap(memory: memoryview, gap: Gap) -> None:
    end = gap.offset_bytes + len(gap.content)
    if gap.offset_bytes < 0 or end > len(memory):
        raise BackendError("a description that reaches beyond its copy")
    memory[gap.offset_bytes : end] = gap.content
