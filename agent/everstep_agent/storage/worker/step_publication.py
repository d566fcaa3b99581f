"""Step publication: writes the manifest, moves ``latest``, removes what nobody needs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep_agent.storage.backends.backend import (
    BackendError,
    StorageBackend,
    UnseenFileError,
)
from everstep_agent.storage.formats.latest_pointer import (
    decide_move,
    read_pointer,
    removable_steps,
)
from everstep_agent.storage.formats.records import (
    FileRecord,
    LatestPointer,
    StepKey,
    StepManifest,
    data_name,
    description_name,
    encode_record,
    key_of,
    open_description,
    record_hash,
)
from everstep_agent.storage.worker.generation_beginning import ensure_beginning, refuse_rival
from everstep_agent.storage.worker.messages import LatestMoved, MoveLatest
from everstep_agent.storage.worker.step_listing import MANIFEST, find_whole_step
from everstep_common.orders import StoredFile
from everstep_common.reports import StoredStep


def move_latest(backend: StorageBackend, wanted: MoveLatest) -> LatestMoved:
    """Do all of it; what is done already is left. Raises OSError and BackendError."""
    target, beginning = wanted.target, wanted.beginning
    if beginning is not None:
        refuse_rival(backend, beginning)
        ensure_beginning(backend, beginning)
    if target is not None:
        target = _whole(backend, wanted, target)
    outcome = _Outcome(wanted.generation, target, wanted.keep)
    backend.move_latest(wanted.generation, outcome.decide)
    if outcome.latest is None:
        return LatestMoved(outcome.reason)
    whole = [key for key in wanted.keep if find_whole_step(backend, key) is not None]
    restored = None if beginning is None else beginning.parent
    removed = removable_steps(backend.list_steps(), wanted.keep, whole, outcome.latest, restored)
    for key in removed:
        backend.remove_step(key, wanted.generation)
    return LatestMoved(outcome.reason, tuple(removed))


@dataclass(slots=True)
class _Outcome:
    """Decides, and keeps what was decided."""

    generation: int
    target: StoredStep | None
    keep: tuple[StepKey, ...]
    latest: LatestPointer | None = None
    reason: str = field(default="")

    def decide(self, content: bytes | None, newest: int) -> bytes | None:
        """See DecideLatest. Raises BackendError for a generation that was overtaken."""
        now = read_pointer(content).latest
        moved = decide_move(now, newest, self.generation, self.target, self.keep)
        self.reason = moved.reason
        if moved.refused:
            raise BackendError(moved.reason)
        self.latest = moved.content or now
        return encode_record(moved.content) if moved.content else None


def _whole(backend: StorageBackend, wanted: MoveLatest, target: StoredStep) -> StoredStep:
    """Return the target with its manifest, which is written when every file is there."""
    key = key_of(target)
    found = find_whole_step(backend, key)
    if found is None and wanted.files:
        files = tuple(_record(backend, key, file) for file in _by_rank(wanted.files))
        manifest = StepManifest(
            job=wanted.location.job,
            key=key,
            world_size=target.world_size,
            files=files,
            skipped=wanted.skipped,
        )
        backend.write_small(key, MANIFEST, encode_record(manifest))
        found = find_whole_step(backend, key)
    if found is None:
        raise BackendError(f"{key} is not complete here")
    if target.manifest_hash and found.manifest_hash != target.manifest_hash:
        raise BackendError(f"the manifest of {key} is not the one that was written")
    return found


def _unseen(backend: StorageBackend, key: StepKey, file: StoredFile) -> BackendError:
    """Return why a file that was written is not seen; that is known only where both have an id."""
    what = f"the file of rank {file.rank}, {key}, is not seen from this node"
    try:
        here = backend.identity()
    except (BackendError, OSError):  # as on a file system without links
        here = ""
    if here and file.storage_id and here != file.storage_id:
        return BackendError(
            f"{what}, and its own node has written it to another folder: the path is not shared"
            " by all nodes; name one that is"
        )
    if here and here == file.storage_id:
        return UnseenFileError(
            f"{what}, though both nodes share the folder: it was removed, or is not visible yet"
        )
    return UnseenFileError(
        f"{what}: it was removed, or is not visible yet, or its node has another folder of that"
        " name; it is not known which"
    )


def _by_rank(files: Iterable[StoredFile]) -> list[StoredFile]:
    return sorted(files, key=lambda file: file.rank)


def _record(backend: StorageBackend, key: StepKey, file: StoredFile) -> FileRecord:
    content = backend.read_small(key, description_name(file.rank))
    if content is None:
        raise _unseen(backend, key, file)
    found = open_description(content)
    if found.root_hash.hex() != file.root_hash or (found.key, found.rank) != (key, file.rank):
        raise BackendError(f"the file of rank {file.rank}, {key}, is of another copy")
    if backend.file_size(key, data_name(file.rank)) != found.file_bytes:
        raise BackendError(f"the file of rank {file.rank}, {key}, is not complete")
    return FileRecord(
        rank=file.rank,
        size_bytes=found.size_bytes,
        root_hash=found.root_hash,
        layout=found.layout,
        file_bytes=found.file_bytes,
        description_hash=record_hash(content),
    )
