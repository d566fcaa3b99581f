"""Storage worker messages: what the agent asks of a storage worker, and what that answers.

Agent:  AssumeUser → UserAssumed | RequestFailed; then one request at a time, each answered by its
        answer or RequestFailed.
Worker: BytesMoved at any time while bytes move.
"""

from dataclasses import dataclass

from everstep_agent.storage.formats.records import (
    FileDescription,
    LatestPointer,
    StepKey,
    StepManifest,
)
from everstep_common.orders import StoredFile
from everstep_common.reports import StoredStep
from everstep_common.trainer_messages import DataRange, Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumeUser:
    """Give up every right but those of this user."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    # The user's environment variables with the credentials for a bucket.
    environment: dict[str, str]
    # Whether to import the library for buckets, which must be done before the rights are given up.
    bucket: bool = False


@dataclass(frozen=True, slots=True)
class UserAssumed:
    """Answer to AssumeUser: the worker is that user now."""


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """Place of a job's files: a folder or ``s3://bucket/prefix``, and the job's part of it."""

    path: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCopy:
    """Write a rank's file from the read-only memory that comes along."""

    location: StorageLocation
    key: StepKey
    rank: int
    world_size: int
    size_bytes: int
    root_hash: bytes
    layout: bytes
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class CopyWritten:
    """The file is there, whole; ``file_bytes`` 0: it was there before.

    ``storage_id`` is that of the folder it is in, as StorageBackend says it.
    """

    file_bytes: int
    storage_id: str = ""


@dataclass(frozen=True, slots=True)
class DescribeFile:
    """Ask what a rank's file holds."""

    location: StorageLocation
    key: StepKey
    rank: int


@dataclass(frozen=True, slots=True)
class FileDescribed:
    """Answer to DescribeFile: the description; None: there is no whole file."""

    description: FileDescription | None


@dataclass(frozen=True, slots=True)
class FillCopy:
    """Read a rank's file into the memory that comes along, as the copy was."""

    location: StorageLocation
    key: StepKey
    rank: int
    root_hash: bytes


@dataclass(frozen=True, slots=True)
class CopyFilled:
    """The bytes are there; they are still to be verified."""

    description: FileDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLatest:
    """Write the step's manifest if it has none, then move ``latest``, then remove what may go."""

    location: StorageLocation
    generation: int
    target: StoredStep | None
    files: tuple[StoredFile, ...] = ()
    keep: tuple[StepKey, ...] = ()
    # Data that the job leaves out, for the manifest.
    skipped: tuple[DataRange, ...] = ()


@dataclass(frozen=True, slots=True)
class LatestMoved:
    """``latest`` is where it should be, or why it stayed."""

    reason: str
    removed: tuple[StepKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSteps:
    """Ask for the whole steps; ``files`` asks for one step's manifest besides."""

    location: StorageLocation
    manifest_of: StepKey | None = None


@dataclass(frozen=True, slots=True)
class StepListing:
    """Answer to ListSteps: the whole steps that are there."""

    latest: LatestPointer | None
    newest_generation: int
    steps: tuple[StoredStep, ...]
    manifest: StepManifest | None = None
    # The step that ``latest`` points to, when it is not complete any more and another one is given.
    lost_latest: StepKey | None = None


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Report of the bytes moved since the last one."""

    count: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Answer to a request that could not be done; one sentence. ``unseen``: it may be later."""

    reason: str
    unseen: bool = False


TO_WORKER = (AssumeUser, WriteCopy, DescribeFile, FillCopy, MoveLatest, ListSteps)
# With each of these comes one descriptor of sealed memory.
CARRIERS = (WriteCopy, FillCopy)
FROM_WORKER = (
    UserAssumed,
    CopyWritten,
    FileDescribed,
    CopyFilled,
    LatestMoved,
    StepListing,
    BytesMoved,
    RequestFailed,
)
