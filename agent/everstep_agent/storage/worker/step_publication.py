"""Step publication: writes the manifest, moves ``latest``, removes what nobody needs."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep_agent.storage.backends.backend import (
    BackendError,
    StorageBackend,
    UnseenFileError,
)
from everstep_agent.storage.formats.latest_pointer import (
    best_available,
    decide_move,
    removable_steps,
)
from everstep_agent.storage.formats.records import (
    FileRecord,
    LatestPointer,
    RecordError,
    StepKey,
    StepManifest,
    data_name,
    decode_record,
    description_name,
    encode_record,
    is_sane,
    key_of,
    open_description,
    record_hash,
)
from everstep_agent.storage.worker.messages import LatestMoved, MoveLatest, StepListing
from everstep_common.orders import StoredFile
from everstep_common.reports import StoredStep

_MANIFEST = "manifest.json"
# How many of the newest steps are looked at in a folder that is never tidied: a job continues from
# one of them.
_STEPS_SEEN_MAX = 64


def move_latest(backend: StorageBackend, wanted: MoveLatest) -> LatestMoved:
    """Do all of it; what is done already is left. Raises OSError and BackendError."""
    target = wanted.target
    if target is not None:
        target = _whole(backend, wanted, target)
    outcome = _Outcome(wanted.generation, target, wanted.keep)
    backend.move_latest(wanted.generation, outcome.decide)
    if outcome.latest is None:
        return LatestMoved(outcome.reason)
    whole = [key for key in wanted.keep if find_whole_step(backend, key) is not None]
    removed = removable_steps(backend.list_steps(), wanted.keep, whole, outcome.latest)
    for key in removed:
        backend.remove_step(key, wanted.generation)
    return LatestMoved(outcome.reason, tuple(removed))


def list_steps(backend: StorageBackend, manifest_of: StepKey | None) -> StepListing:
    """Return what is whole, newest last; what cannot be read is not complete."""
    found = [
        stored
        for key in backend.list_steps()[-_STEPS_SEEN_MAX:]
        if (stored := find_whole_step(backend, key))
    ]
    manifest = _manifest(backend, manifest_of) if manifest_of else None
    latest = _latest(backend.read_latest())
    newest = max(backend.newest_generation(), latest.generation if latest else 0)
    usable = best_available(latest, {key_of(stored): stored for stored in found})
    lost = latest.target if latest and latest.target and usable != latest else None
    return StepListing(usable, newest, tuple(found), manifest and manifest[0], lost)


def find_whole_step(backend: StorageBackend, key: StepKey) -> StoredStep | None:
    """Return a step that is whole: its manifest can be read, and every file has its size."""
    found = _manifest(backend, key)
    if found is None:
        return None
    manifest, manifest_hash = found
    for file in manifest.files:
        if backend.file_size(key, data_name(file.rank)) != file.file_bytes:
            return None
    size = manifest.size_bytes
    return StoredStep(
        generation=key.generation,
        step=key.step,
        world_size=manifest.world_size,
        manifest_hash=manifest_hash.hex(),
        size_bytes=size,
        skipped=manifest.skipped,
    )


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
        now = _latest(content)
        moved = decide_move(now, newest, self.generation, self.target, self.keep)
        self.reason = moved.reason
        if moved.refused:
            raise BackendError(moved.reason)
        self.latest = moved.content or now
        return encode_record(moved.content) if moved.content else None


def _latest(content: bytes | None) -> LatestPointer | None:
    try:
        latest = decode_record(LatestPointer, content) if content is not None else None
    except RecordError:  # not ours, or cut short by something else: it points nowhere
        return None
    return latest if latest and is_sane(latest) else None


def _manifest(backend: StorageBackend, key: StepKey) -> tuple[StepManifest, bytes] | None:
    try:
        content = backend.read_small(key, _MANIFEST)
        if content is None:
            return None
        manifest = decode_record(StepManifest, content)
    except (RecordError, BackendError):
        return None
    return (manifest, record_hash(content)) if manifest.key == key and is_sane(manifest) else None


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
        backend.write_small(key, _MANIFEST, encode_record(manifest))
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
