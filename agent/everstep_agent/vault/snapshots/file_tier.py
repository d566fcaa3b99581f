"""File tier: what the vault asks of files on a node's disk and of whole steps in shared storage."""

from dataclasses import dataclass
from typing import Protocol

from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyManifest, CopyRef
from everstep_common.reports import StoredStep


class BadFileError(OSError):
    """A file is there and is not what was written: short, torn, or with a header that is wrong."""


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A copy in a file of a whole step, and which part of the state it is."""

    copy: CopyRef
    layout: bytes


class FileTier(Protocol):
    """One job's files.

    Every method is called on the event loop and never blocks it. A file system that hangs runs into
    the tier's own deadline: TimeoutError, an OSError. A method may be cancelled at any await.
    """

    async def stored(self, step: StoredStep) -> tuple[FileCopy, ...]:
        """Return every rank's file of a whole step in shared storage.

        The manifest of the step has been read and has ``step.manifest_hash``.
        Raises OSError when it is not there, BadFileError when it is another one.
        """
        ...

    async def manifest(self, copy: CopyRef) -> CopyManifest:
        """Return which shards a file has, and where each lies in what ``load`` gives.

        The file may be one of ``stored``, or one that this node wrote and reported as a copy on
        disk. ``root_hash`` and ``size_bytes`` of the answer are those of the memory that ``load``
        gives, not of the file. Raises OSError, and BadFileError when the file says otherwise than
        ``copy``.
        """
        ...

    async def load(self, manifest: CopyManifest) -> Region:
        """Return new memory with the copy at its beginning; the caller releases it.

        It comes from the allocator and is counted there; nobody has it mapped for writing any
        more, in whatever process. The bytes are not believed: the caller freezes and hashes them.
        Raises OSError (BadFileError for a short file) and MemoryShortError.
        """
        ...
