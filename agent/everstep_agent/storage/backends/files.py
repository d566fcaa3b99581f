"""Files below a job's folder: opened without following links, durable before they have a name."""

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from everstep_agent.storage.backends.backend import ProgressCallback, UnusableFileError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Bytes of one write: small enough that it ends on a slow server well before any deadline.
_WRITE_BYTES = 8 * 1024 * 1024
# Flushed after so many bytes: a flush of a whole state at the end would stall everybody on that
# disk, and this process would show no progress meanwhile.
_SYNC_BYTES = 128 * 1024 * 1024
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp")
_libc = ctypes.CDLL(None, use_errno=True)


def open_folder(parent: int, name: str, *, create: bool) -> int:
    """Return a descriptor of a folder inside another. Raises OSError, for a link too."""
    if create:
        try:
            os.mkdir(name, 0o777, dir_fd=parent)
            os.fsync(parent)
        except FileExistsError:
            pass
    return os.open(name, _FOLDER, dir_fd=parent)


@contextmanager
def subfolder(parent: int, name: str, *, create: bool = False) -> Iterator[int]:
    """Open a folder inside another for a while. Raises OSError; UnusableFileError for a link."""
    try:
        fd = open_folder(parent, name, create=create)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnusableFileError(f"{name} is not a folder") from error
        raise
    with closing(fd):
        yield fd


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a descriptor in the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_file(folder: int, name: str) -> int:
    """Return a descriptor of a regular file. Raises OSError and UnusableFileError."""
    # Without O_NONBLOCK, opening a FIFO would wait for its other end.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise UnusableFileError(f"{name} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnusableFileError(f"{name} is not a regular file")
    return fd


def read_small(folder: int, name: str, limit: int) -> bytes | None:
    """Return the content of a file, None for none. Raises OSError and UnusableFileError."""
    try:
        fd = open_file(folder, name)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UnusableFileError(f"{name} is larger than {limit} bytes")
    return content


def temporary_name(name: str) -> str:
    """Return a name for a file that is being written, which nobody else has."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


def leftover_files(folder: int, name: str) -> Iterator[str]:
    """Yield what is left of earlier attempts to write a file."""
    for found in os.listdir(folder):
        matched = _TEMPORARY.fullmatch(found)
        if matched and matched["name"] == name:
            yield found


def remove_if_present(folder: int, name: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def write_new(
    folder: int,
    name: str,
    pieces: Iterable[memoryview],
    size_bytes: int,
    on_progress: ProgressCallback,
) -> None:
    """Write a file under a new name, and have it on the disk. Removed again when that fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        with closing(fd):
            _set_aside(fd, size_bytes)
            unsynced = 0
            for piece in pieces:
                for at in range(0, len(piece), _WRITE_BYTES):
                    unsynced += _write(fd, piece[at : at + _WRITE_BYTES], on_progress)
                    if unsynced >= _SYNC_BYTES:
                        unsynced = 0
                        _sync(fd)
                        on_progress(0)
            _sync(fd)
    except BaseException:
        remove_if_present(folder, name)
        raise


def make_once(folder: int, name: str, content: bytes) -> None:
    """Make a file, whole or not at all, unless another process is quicker.

    Raises OSError, also on a file system without links.
    """
    unnamed = temporary_name(name)
    write_new(folder, unnamed, [memoryview(content)], len(content), lambda _: None)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(unnamed, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
    except FileNotFoundError:
        # The quicker one removes what is left of others.
        if name not in os.listdir(folder):
            raise
    finally:
        remove_if_present(folder, unnamed)


def replace_small(folder: int, name: str, content: bytes) -> None:
    """Write a small file under its name, whole or not at all. Raises OSError."""
    unnamed = temporary_name(name)
    write_new(folder, unnamed, [memoryview(content)], len(content), lambda _: None)
    rename_durably(folder, unnamed, name)


def rename_durably(folder: int, temporary_name: str, name: str) -> None:
    """Give a written file its name, for good."""
    os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _write(fd: int, content: memoryview, on_progress: ProgressCallback) -> int:
    written = 0
    while written < len(content):
        count = os.write(fd, content[written:])
        written += count
        on_progress(count)
    return written


def _sync(fd: int) -> None:
    os.fsync(fd)
    # The file is not read again here, and its cached pages count against the agent's memory.
    with contextlib.suppress(OSError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _set_aside(fd: int, size_bytes: int) -> None:
    """Take the room before anything is written. Raises OSError (ENOSPC).

    Not posix_fallocate: where the file system cannot, it would write every block instead.
    """
    if size_bytes == 0:
        return
    size = ctypes.c_long(size_bytes)
    if _libc.fallocate(fd, 0, ctypes.c_long(0), size) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        raise OSError(code, os.strerror(code))
    room = os.fstatvfs(fd)
    if room.f_bavail * room.f_frsize < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
