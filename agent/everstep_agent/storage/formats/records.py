"""Records in a job's folder: descriptions, manifests, ``began.json``, ``latest``. Pure.

All are JSON objects of one dataclass. They are hostile input when they are read: sizes are bounded
by who reads, shapes by the codec, names are numbers, and each carries or is named by a hash.
"""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import xxhash

from everstep_common import quantities as q
from everstep_common.codec import CodecError, from_json, to_json
from everstep_common.rank_messages import Entry
from everstep_common.reports import DataRange, StoredStep

T = TypeVar("T")
# The largest record that is read: 100,000 shards with long names.
RECORD_BYTES_MAX = 64 * 1024 * 1024
_FORMAT = 1
# The largest number of a user that is reported.
_UID_MAX = 2**32 - 1
# Ids that storage names are reported, and shown to people.
_ID_MAX = 256
# As many points as the controller keeps of a branch, and the one that they end at.
BRANCH_MAX = 1025
# Largest size, which leaves room to add. The other limits are those of what is reported.
_SIZE_MAX = 2**62


class RecordError(Exception):
    """Record that Everstep did not write; one sentence."""


@dataclass(frozen=True, slots=True, order=True)
class StepKey:
    """A step of a generation."""

    generation: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} of generation {self.generation}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes of the copy between its shards that are not zero: the root hash covers them."""

    offset_bytes: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDescription:
    """``rank-R.json``: what the file of a rank holds, and how it becomes the copy again."""

    job: str
    key: StepKey
    rank: int
    world_size: int
    # The copy in memory: its size, the xxh3-128 over its chunks' hashes, its part of the state.
    size_bytes: int
    root_hash: bytes
    layout: bytes
    # The file: its size, where its data begins, and the xxh3-128 of all bytes from there on.
    file_bytes: int
    data_begins: int
    data_hash: bytes
    entries: tuple[Entry, ...]
    gaps: tuple[Gap, ...] = ()
    format: int = _FORMAT
    # xxh3-128 of this record with the field empty.
    own_hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One rank's file in a manifest."""

    rank: int
    size_bytes: int
    root_hash: bytes
    layout: bytes
    file_bytes: int
    # xxh3-128 of rank-R.json.
    description_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepManifest:
    """``manifest.json``: the step is whole, and these are its files."""

    job: str
    key: StepKey
    world_size: int
    files: tuple[FileRecord, ...]
    format: int = _FORMAT
    # Data that the job had left out by then, in order and apart.
    skipped: tuple[DataRange, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(file.file_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """``began.json``: whose generation this is, and the steps that its state came from."""

    # The job's name and its id, and the cluster that gave it the id.
    job: str
    job_id: str
    cluster: str
    generation: int
    # The step that it went on from; None: it began from scratch.
    parent: StepKey | None = None
    # The last steps of the generations before the parent's that the state came from, oldest first.
    branch: tuple[StepKey, ...] = ()
    format: int = _FORMAT
    # xxh3-128 of this record without the fields from here on, which a version before does not know.
    own_hash: bytes = b""
    # The user whose job it is; None: a version before has written it, or it cannot be used.
    uid: int | None = None
    # xxh3-128 of this record with that user and without any hash.
    uid_hash: bytes = b""

    @property
    def lineage(self) -> tuple[StepKey, ...]:
        """Return all of them, the parent last."""
        return self.branch if self.parent is None else (*self.branch, self.parent)

    def is_same_job(self, other: "Beginning") -> bool:
        """Return whether both are of one run of one job."""
        return (self.job_id, self.cluster) == (other.job_id, other.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestPointer:
    """``latest``: a hint to the step to go on from, and the generation that said so."""

    # The generation that wrote the pointer; an older one may not change it any more.
    generation: int
    # The step that it points to; None: the generation has stored none, and can continue from none.
    target: StepKey | None = None
    folder: str = ""
    # In hexadecimal.
    manifest_hash: str = ""
    world_size: int = 0
    size_bytes: int = 0
    # Older steps from which the job could continue as well, should that one be lost.
    older: tuple[StepKey, ...] = ()
    format: int = _FORMAT
    # Data that the job has left out so far, as in the step's manifest.
    skipped: tuple[DataRange, ...] = ()


def key_of(step: StoredStep) -> StepKey:
    """Return which step of which generation is stored."""
    return StepKey(step.generation, step.step)


def is_sane(record: "LatestPointer | StepManifest | FileRecord") -> bool:
    """Return whether its numbers can be counted with: all of them, and the sum of their sizes."""
    limits: tuple[tuple[int, int], ...]
    match record:
        case LatestPointer(generation=generation, world_size=world_size, size_bytes=size_bytes):
            limits = (*_limits(record.target), (generation, q.TOLD_MAX))
            limits += ((world_size, q.RANKS_MAX), (size_bytes, _SIZE_MAX))
        case FileRecord(rank=rank, size_bytes=size_bytes, file_bytes=file_bytes):
            limits = ((rank, q.RANKS_MAX - 1), (size_bytes, _SIZE_MAX), (file_bytes, _SIZE_MAX))
        case StepManifest(world_size=world_size, files=files):
            if world_size == 0 or not all(map(is_sane, files)):
                return False
            limits = (*_limits(record.key), (world_size, q.RANKS_MAX))
            limits += ((record.size_bytes, _SIZE_MAX),)
    if not isinstance(record, FileRecord) and not _apart(record.skipped):
        return False
    return all(0 <= number <= most for number, most in limits)


def _limits(key: StepKey | None) -> tuple[tuple[int, int], ...]:
    return ((key.generation, q.TOLD_MAX), (key.step, q.TOLD_MAX)) if key else ()


def _apart(ranges: tuple[DataRange, ...]) -> bool:
    """Return whether ranges are few enough, in order and apart."""
    ends = [-1, *(end for one in ranges for end in (one.first, one.last + 1))]
    ordered = all(before < after for before, after in pairwise(ends))
    return len(ranges) <= q.RANGES_MAX and ordered and ends[-1] <= q.NUMBER_MAX


def record_hash(content: bytes) -> bytes:
    """Return the hash by which records name one another."""
    return bytes(xxhash.xxh3_128_digest(content))


def encode_record(record: object) -> bytes:
    """Return a record as it is written."""
    body = to_json(record)
    if isinstance(body, dict) and body.get("skipped") == []:
        # An older agent reads what it knows; it must not go on from a step whose data it would mix.
        del body["skipped"]
    if isinstance(body, dict) and body.get("uid", 0) is None:
        del body["uid"], body["uid_hash"]  # what a version before has written stays what it was
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode_record(kind: type[T], content: bytes) -> T:
    """Return a record that was read. Raises RecordError."""
    if len(content) > RECORD_BYTES_MAX:
        raise RecordError(f"a {kind.__name__} of more than {RECORD_BYTES_MAX} bytes")
    try:
        record = from_json(kind, json.loads(content))
    except (CodecError, ValueError, RecursionError) as error:
        raise RecordError(f"not a {kind.__name__}: {error}"[:300]) from error
    if getattr(record, "format", _FORMAT) != _FORMAT:
        raise RecordError(f"a {kind.__name__} of another version of everstep")
    return record


def seal_description(description: FileDescription) -> FileDescription:
    """Return it with its own hash."""
    return replace(description, own_hash=_own_hash(description))


def encode_beginning(beginning: Beginning) -> bytes:
    """Return it as it is written, with its own hash."""
    uid_hash = b"" if beginning.uid is None else _uid_hash(beginning)
    return encode_record(replace(beginning, own_hash=_own_hash(beginning), uid_hash=uid_hash))


def open_beginning(content: bytes, generation: int) -> Beginning:
    """Return the beginning of a generation as it was written. Raises RecordError."""
    found = decode_record(Beginning, content)
    if found.own_hash != _own_hash(found):
        raise RecordError("it is not what was written")
    if found.generation != generation:
        raise RecordError(f"it is of generation {found.generation}")
    if any(len(name) > _ID_MAX or not _is_plain(name) for name in (found.job_id, found.cluster)):
        raise RecordError("it names no job")
    if not _goes_back(found):
        raise RecordError("the steps that it came from are in no order")
    known = found.uid is not None and 0 <= found.uid <= _UID_MAX
    uid = found.uid if known and found.uid_hash == _uid_hash(found) else None
    return replace(found, own_hash=b"", uid=uid, uid_hash=b"")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _goes_back(beginning: Beginning) -> bool:
    """Return whether a beginning names older generations only, each once, and numbers in bounds."""
    lineage = beginning.lineage
    if len(lineage) > BRANCH_MAX or any(
        not 0 <= number <= most for key in lineage for number, most in _limits(key)
    ):
        return False
    generations = [*(key.generation for key in lineage), beginning.generation]
    return all(before < after for before, after in pairwise(generations))


def open_description(content: bytes) -> FileDescription:
    """Return a description that is what was written. Raises RecordError."""
    description = decode_record(FileDescription, content)
    if description.own_hash != _own_hash(description):
        raise RecordError("a description that changed since it was written")
    return description


def _own_hash(record: FileDescription | Beginning) -> bytes:
    if isinstance(record, Beginning):
        record = replace(record, uid=None, uid_hash=b"")
    return record_hash(encode_record(replace(record, own_hash=b"")))


def _uid_hash(beginning: Beginning) -> bytes:
    return record_hash(encode_record(replace(beginning, own_hash=b"", uid_hash=b"")))


def step_folder(key: StepKey) -> str:
    """Return the folder of a step inside the job's."""
    return f"gen-{key.generation}/step-{key.step}"


def data_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank}.safetensors"


def description_name(rank: int) -> str:
    """Return the name of the description beside it."""
    return f"rank-{rank}.json"
