"""Storage backend interface: what a folder and a bucket both do for the files of a job."""

from collections.abc import Callable, Iterable
from typing import Protocol

from everstep_agent.storage.formats.records import StepKey

# Called with the number of bytes moved while they move: a worker without progress is given up.
ProgressCallback = Callable[[int], None]
# Takes ``latest`` as stored and the newest generation seen; returns the new one, None to leave it.
DecideLatest = Callable[[bytes | None, int], bytes | None]


class BackendError(Exception):
    """The place does not do what was asked; one sentence for the user."""


class UnseenFileError(BackendError):
    """A file that another node has written is not seen here: later it may be."""


class UnusableFileError(BackendError):
    """A file with the name of a record or of a folder is neither, or is too large."""


class RivalError(BackendError):
    """Another job brings its steps to the same path, and has taken over."""


class ClosedError(BackendError):
    """This node's agent can open no file of this user, whatever the place is like."""


class StorageBackend(Protocol):
    """The files of one job. Raises OSError and BackendError; what returned is durable.

    A file is under its name whole or not at all, whenever whoever writes it dies.
    """

    def write_file(
        self,
        key: StepKey,
        name: str,
        pieces: Iterable[memoryview],
        size_bytes: int,
        on_progress: ProgressCallback,
    ) -> None:
        """Write a large file, piece by piece; an older one of that name is replaced."""
        ...

    def write_small(self, key: StepKey, name: str, content: bytes) -> None:
        """Write a small file."""
        ...

    def read_small(self, key: StepKey, name: str) -> bytes | None:
        """Return a small file, or None."""
        ...

    def file_size(self, key: StepKey, name: str) -> int | None:
        """Return the size of a file, or None."""
        ...

    def read_into(
        self,
        key: StepKey,
        name: str,
        begins: int,
        buffers: Iterable[memoryview],
        on_progress: ProgressCallback,
    ) -> None:
        """Fill buffers, one after another, from a place in a file on."""
        ...

    def identity(self) -> str:
        """Return the id of this place, the same for all nodes that share it; "" for none."""
        ...

    def list_steps(self) -> list[StepKey]:
        """Return the steps that have a folder, oldest first."""
        ...

    def list_generations(self) -> list[int]:
        """Return the generations that are known here."""
        ...

    def read_beginning(self, generation: int) -> bytes | None:
        """Return ``began.json`` of a generation, or None."""
        ...

    def write_beginning(self, generation: int, content: bytes, *, replaces: bool) -> None:
        """Write ``began.json`` of a generation; one that is there stays unless it is replaced."""
        ...

    def remove_step(self, key: StepKey, generation: int) -> None:
        """Remove a step on behalf of a generation; one with what is not ours in it stays.

        Raises BackendError when a newer generation has taken over.
        """
        ...

    def read_latest(self) -> bytes | None:
        """Return ``latest``, or None."""
        ...

    def move_latest(self, generation: int, decide: DecideLatest) -> None:
        """Fence older generations off, and change ``latest`` as ``decide`` says.

        What was decided for an older generation is never done once this has been called.
        """
        ...
