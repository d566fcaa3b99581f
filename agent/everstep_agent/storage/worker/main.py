"""Storage worker: opens what a job names, with the job's rights and no others.

Started by its path, with a socket to the agent as standard input. Each request is answered; a
request that never is costs this process and nothing else.
"""

import mmap
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

if __name__ == "__main__":
    # Started by its path, so the packages beside it are found from here, wherever it is installed.
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from everstep_agent.storage.backends.backend import (
    BackendError,
    ClosedError,
    RivalError,
    StorageBackend,
    UnseenFileError,
)
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import Beginning, RecordError
from everstep_agent.storage.worker import (
    generation_beginning,
    messages,
    own_files,
    rank_files,
    step_listing,
    step_publication,
)
from everstep_agent.storage.worker.user_rights import assume_user
from everstep_common.frames import Channel, FrameError
from everstep_common.printable import printable
from everstep_common.sealed_memory import sealed_memory_problem
from everstep_common.storage_environment import environment_problem

# How often progress is reported: often enough for any deadline, seldom enough to cost nothing.
_BEAT_S = 0.2
_KINDS = {
    UnseenFileError: messages.RefusalKind.UNSEEN,
    RivalError: messages.RefusalKind.RIVAL,
    ClosedError: messages.RefusalKind.CLOSED,
}
_POPULATED = mmap.MAP_SHARED | mmap.MAP_POPULATE


class StorageWorker:
    """Worker that answers the agent until the agent closes the connection."""

    def __init__(
        self, channel: Channel, make_depot: Callable[[messages.StorageLocation], StorageBackend]
    ) -> None:
        self._channel = channel
        self._open_backend = make_depot
        self._moved = 0
        self._reported_s = 0.0
        # What this process has seen there itself.
        self._begun: set[tuple[messages.StorageLocation, Beginning]] = set()

    def serve(self) -> None:
        """Answer until the connection ends. Raises ConnectionError then."""
        while True:
            request, fds = self._channel.receive(None)
            try:
                answer: object = self._answer(request, fds)
            except (BackendError, RecordError) as error:
                answer = _refused(error)
            except (OSError, ValueError) as error:  # a path may be no text that a path can be
                answer = messages.RequestFailed(printable(_sentence(error)))
            finally:
                for fd in fds:
                    os.close(fd)
            self._channel.send(answer)

    def _answer(self, request: object, fds: list[int]) -> object:
        match request:
            case messages.WriteCopy():
                return self._write(request, fds)
            case messages.FillCopy():
                return self._fill(request, fds)
            case messages.OrderOwnFiles() | messages.ReadInOwnFile():
                return self._serve_own_files(request)
            case messages.DescribeFile(place, key, rank):
                return messages.FileDescribed(
                    rank_files.describe_file(self._open_backend(place), key, rank)
                )
            case messages.MoveLatest():
                return step_publication.move_latest(self._open_backend(request.location), request)
            case messages.ListSteps(place, manifest_of):
                backend = self._open_backend(place)
                listing = step_listing.list_steps(backend, manifest_of)
                return replace(listing, storage_id=_identity(backend))
            case _:
                return messages.RequestFailed("a request that comes too late")

    def _write(self, request: messages.WriteCopy, fds: list[int]) -> object:
        fd = _sealed_memory(fds, request.size_bytes)
        size = os.fstat(fd).st_size
        # Not closed here: the mapping ends with the last view of it, and closing it before raises.
        memory = memoryview(mmap.mmap(fd, size, flags=_POPULATED, prot=mmap.PROT_READ))
        backend = self._open_backend(request.location)
        self._begin(backend, request)
        written = rank_files.write_copy(backend, request, memory, self._report_progress)
        return messages.CopyWritten(written, _identity(backend))

    def _serve_own_files(self, request: messages.OrderOwnFiles | messages.ReadInOwnFile) -> object:
        """Ask ranks that have no agent to write a step, or take in what one has written."""
        backend = self._open_backend(request.location)
        if isinstance(request, messages.ReadInOwnFile):
            found = own_files.read_in(backend, request, self._report_progress)
            return messages.OwnFileRead(found, _identity(backend))
        self._begin(backend, request)
        own_files.write_order(backend, request)
        return messages.OwnFilesOrdered()

    def _begin(
        self, backend: StorageBackend, request: messages.WriteCopy | messages.OrderOwnFiles
    ) -> None:
        """Have it in storage how the step's generation began, before anything of the step is."""
        beginning = request.beginning
        if beginning is not None and (request.location, beginning) not in self._begun:
            generation_beginning.ensure_beginning(backend, beginning)
            self._begun.add((request.location, beginning))

    def _fill(self, request: messages.FillCopy, fds: list[int]) -> object:
        fd = _sealed_memory(fds, 0)
        memory = memoryview(mmap.mmap(fd, os.fstat(fd).st_size))
        backend = self._open_backend(request.location)
        return messages.CopyFilled(
            rank_files.fill_copy(backend, request, memory, self._report_progress)
        )

    def _report_progress(self, count: int) -> None:
        self._moved += count
        now = time.monotonic()
        if now - self._reported_s >= _BEAT_S:
            self._channel.send(messages.BytesMoved(self._moved))
            self._moved, self._reported_s = 0, now


def open_backend(place: messages.StorageLocation) -> StorageBackend:
    """Return the folder or bucket of a job."""
    if place.path.startswith("s3://"):
        from everstep_agent.storage.backends.bucket import open_bucket

        return open_bucket(place.path, place.job)
    return FolderBackend(place.path, place.job, known=place.known)


def agent_socket() -> socket.socket:
    """Return the connection to the agent, which was standard input: no child inherits it now."""
    connection = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def main(channel: Channel) -> None:
    """Serve the agent. Raises ConnectionError at its end."""
    user, lifelines = channel.receive(None)
    if not isinstance(user, messages.AssumeUser) or len(lifelines) != 1:
        return
    try:
        if problem := environment_problem(user.environment):
            raise BackendError(problem)
        if user.bucket:
            from everstep_agent.storage.backends.bucket import import_boto3

            import_boto3()
        os.environ.update(user.environment)
        assume_user(user, os.getppid(), lifelines[0])
    except (BackendError, OSError) as error:
        channel.send(_refused(error))
        return
    channel.send(messages.UserAssumed())
    StorageWorker(channel, open_backend).serve()


def _refused(error: BackendError | RecordError | OSError) -> messages.RequestFailed:
    """Return a refusal with its kind."""
    kind = next(
        (one for of, one in _KINDS.items() if isinstance(error, of)), messages.RefusalKind.OTHER
    )
    return messages.RequestFailed(printable(str(error)), kind)


def _identity(backend: StorageBackend) -> str:
    """Return the id of a place; "" where it cannot have one, as on a file system without links."""
    try:
        return backend.identity()
    except (BackendError, OSError):
        return ""


def _sealed_memory(fds: list[int], size_bytes: int) -> int:
    """Return the descriptor of a request. Raises RecordError for another than it must have."""
    if len(fds) != 1:
        raise RecordError(f"{len(fds)} descriptors came with a request that has one")
    if problem := sealed_memory_problem(fds[0], size_bytes):
        raise RecordError(f"the memory of the copy: {problem}")
    return fds[0]


def _sentence(error: OSError | ValueError) -> str:
    """Return what went wrong, and with which file where that is known."""
    if isinstance(error, ValueError):
        return str(error)
    what = error.strerror or str(error)
    return (
        f"{what}: {os.fsdecode(error.filename)}"
        if isinstance(error.filename, str | bytes)
        else what
    )


def _tell_in_one_line(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error that ends this process: it may have words of the user, and goes to a log."""
    print(printable("".join(traceback.format_exception(kind, error, trace))), file=sys.stderr)


if __name__ == "__main__":
    sys.excepthook = _tell_in_one_line
    try:
        main(Channel(agent_socket(), messages.TO_WORKER, messages.CARRIERS))
    except (ConnectionError, FrameError, KeyboardInterrupt):
        sys.exit(0)
