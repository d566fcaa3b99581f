"""Storage worker messages: what the agent asks of a storage worker, and what that answers.

Agent:  AssumeUser → UserAssumed | RequestFailed; then one request at a time, each answered by its
        answer or RequestFailed.
Worker: BytesMoved at any time while bytes move.
"""

from dataclasses import dataclass
from enum import Enum

from everstep_agent.storage.formats.records import (
    Beginning,
    FileDescription,
    LatestPointer,
    StepKey,
    StepManifest,
)
from everstep_common.orders import StoredFile
from everstep_common.own_files import OwnOrder
from everstep_common.rank_messages import DataRange, Entry
from everstep_common.reports import StoredStep


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumeUser:
    """Give up every right but those of this user; with the pipe that ends with the agent."""

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
    """Place of a job's files: a folder or ``s3://bucket/prefix``, and the job's part of it.

    ``known`` is the id of the folder that the job has used so far; "": it has used none.
    """

    path: str
    job: str
    known: str = ""


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
    # How the step's generation began, to be there before the step; None: this node does not know.
    beginning: Beginning | None = None


@dataclass(frozen=True, slots=True)
class CopyWritten:
    """The file is there, whole; ``file_bytes`` 0: it was there before.

    ``storage_id`` is that of the folder it is in, as StorageBackend says it.
    """

    file_bytes: int
    storage_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOwnFiles:
    """Write the order for a step to ranks without an agent into its folder; ``content`` is it."""

    location: StorageLocation
    key: StepKey
    content: bytes
    beginning: Beginning | None = None


@dataclass(frozen=True, slots=True)
class OwnFilesOrdered:
    """Answer to OrderOwnFiles: it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInOwnFile:
    """Make a rank's file of what the rank wrote by itself for an order."""

    location: StorageLocation
    rank: int
    world_size: int
    order: OwnOrder
    # What the rank's record is sealed with.
    token_sha256: str


@dataclass(frozen=True, slots=True)
class OwnFileRead:
    """Answer to ReadInOwnFile: what is a rank's file now; None: the rank has not written yet."""

    description: FileDescription | None
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
    # How the generation began; None: this node does not know, and removes nothing of older ones.
    beginning: Beginning | None = None


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
class StorageOrigin:
    """Whose newest generation is there: the id of the job, the cluster that gave it, the user."""

    job_id: str
    cluster: str
    # None: not known.
    uid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepListing:
    """Answer to ListSteps: the whole steps that are there, and which a job goes on from."""

    # The newest whole step of the newest generation's branch.
    latest: LatestPointer | None
    newest_generation: int
    steps: tuple[StoredStep, ...]
    manifest: StepManifest | None = None
    # The step that ``latest`` points to, when it is not complete any more and another one is given.
    lost_latest: StepKey | None = None
    # The last steps of the generations before that of ``latest`` on its branch, oldest first.
    branch: tuple[StepKey, ...] = ()
    # None where nobody has written it down.
    origin: StorageOrigin | None = None
    # A whole step that a job goes on from only if its user says so.
    other: LatestPointer | None = None
    # What people have to know of the choice; and why nothing is chosen though there was something.
    note: str = ""
    doubt: str = ""
    # Id of the folder, as StorageBackend says it.
    storage_id: str = ""


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Report of the bytes moved since the last one."""

    count: int


class RefusalKind(Enum):
    """Kind of a refusal, for who has to do something about it."""

    OTHER = "other"
    # A file that another node wrote is not seen: later it may be.
    UNSEEN = "unseen"
    # Another job has the place.
    RIVAL = "rival"
    # This node's agent can open nothing for this user.
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Answer to a request that could not be done; one sentence."""

    reason: str
    kind: RefusalKind = RefusalKind.OTHER


TO_WORKER = (
    AssumeUser,
    WriteCopy,
    OrderOwnFiles,
    ReadInOwnFile,
    DescribeFile,
    FillCopy,
    MoveLatest,
    ListSteps,
)
# With each of these comes one descriptor: of sealed memory, or of a pipe that ends with the agent.
CARRIERS = (AssumeUser, WriteCopy, FillCopy)
FROM_WORKER = (
    UserAssumed,
    CopyWritten,
    OwnFilesOrdered,
    OwnFileRead,
    FileDescribed,
    CopyFilled,
    LatestMoved,
    StepListing,
    BytesMoved,
    RequestFailed,
)
