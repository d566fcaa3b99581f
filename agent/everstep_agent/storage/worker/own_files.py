"""Own files: what ranks without an agent wrote by themselves becomes files like all others.

A rank's own file is hostile input until its record is of this job, and its bytes are those of which
the rank took the hash in its memory.
"""

import hashlib
import mmap
import os

from everstep_agent.storage.backends.backend import BackendError, ProgressCallback, StorageBackend
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import FileDescription, StepKey
from everstep_agent.storage.worker.messages import OrderOwnFiles, ReadInOwnFile, WriteCopy
from everstep_agent.storage.worker.rank_files import describe_file, write_copy
from everstep_agent.vault.snapshots.hashing import CHUNK_BYTES, RootHash
from everstep_agent.vault.snapshots.manifest import entries_problem, extent_bytes, layout_of
from everstep_common.own_files import (
    ORDER,
    OwnFileError,
    OwnRecord,
    own_data_name,
    own_record_name,
    unseal,
)


def write_order(backend: StorageBackend, wanted: OrderOwnFiles) -> None:
    """Write the order for a step. Raises OSError and BackendError."""
    _folder(backend)
    backend.write_small(wanted.key, ORDER, wanted.content)


def read_in(
    backend: StorageBackend, wanted: ReadInOwnFile, on_progress: ProgressCallback
) -> FileDescription | None:
    """Make a rank's file of its own one; None where that is not there. Raises as write_order."""
    folder, order = _folder(backend), wanted.order
    key = StepKey(order.generation, order.step)
    record = _record(folder, wanted, key)
    if record is None:
        return None
    with folder.open_file(key, own_data_name(wanted.rank)) as fd:
        if os.fstat(fd).st_size != record.size_bytes:
            raise BackendError(f"the own file of rank {wanted.rank}, {key}, is not complete")
        # One that is cut while it is read ends this process, and nothing else.
        memory = memoryview(b"")
        if record.size_bytes:  # no file without a byte can be mapped
            memory = memoryview(mmap.mmap(fd, record.size_bytes, prot=mmap.PROT_READ))
        request = WriteCopy(
            location=wanted.location,
            key=key,
            rank=wanted.rank,
            world_size=wanted.world_size,
            size_bytes=record.size_bytes,
            root_hash=_verified_root(memory, record, on_progress),
            layout=layout_of(record.entries),
            entries=record.entries,
        )
        # It hashes again what it has written, before that gets its name.
        write_copy(backend, request, memory, on_progress)
    description = describe_file(backend, key, wanted.rank)
    if description is None or description.root_hash != request.root_hash:
        raise BackendError(f"the file of rank {wanted.rank}, {key}, is of another copy")
    return description


def _folder(backend: StorageBackend) -> FolderBackend:
    if not isinstance(backend, FolderBackend):
        raise BackendError("ranks without an agent write to a folder only, not to a bucket")
    return backend


def _record(backend: StorageBackend, wanted: ReadInOwnFile, key: StepKey) -> OwnRecord | None:
    content = backend.read_small(key, own_record_name(wanted.rank))
    if content is None:
        return None
    try:
        record = unseal(OwnRecord, content, wanted.token_sha256)
    except OwnFileError as error:
        raise BackendError(f"the own file of rank {wanted.rank}, {key}: {error}") from error
    if record.order.nonce != wanted.order.nonce:
        return None  # of an older order: the rank may still write for this one
    if (record.order, record.rank) != (wanted.order, wanted.rank):
        raise BackendError(f"the own file of rank {wanted.rank}, {key}, is one of another")
    problem = entries_problem(record.entries, record.size_bytes)
    if problem or extent_bytes(record.entries) != record.size_bytes:
        raise BackendError(problem or "a copy with more bytes than its shards have")
    return record


def _verified_root(memory: memoryview, record: OwnRecord, on_progress: ProgressCallback) -> bytes:
    """Return the root hash of a copy that is what the rank had in its memory."""
    plain, root = hashlib.sha256(), RootHash()
    for at in range(0, record.size_bytes, CHUNK_BYTES):
        chunk = memory[at : min(at + CHUNK_BYTES, record.size_bytes)]
        plain.update(chunk)
        root.add(chunk)
        on_progress(len(chunk))
    if plain.hexdigest() != record.sha256:
        raise BackendError(f"the own file of rank {record.rank} is not what the rank had in memory")
    return root.digest()
