"""Log files: opened so that another user who may write above them leads them nowhere.

In a folder where everybody may write, a link or a folder that somebody else has put into the path
would have this user's processes write where that user wants; a FIFO would be waited for.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As the kernel.
_LINKS_MAX = 40
# The user to whom a file server maps root.
_NOBODY = 65534


def open_log(path: Path) -> int:
    """Return a descriptor that appends to a file, made with its folders. Raises OSError."""
    folder = open_folder(path.parent)
    try:
        # O_NONBLOCK: a FIFO would wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path.name, flags | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            _refuse_strange_file(os.fstat(fd), os.fstat(folder), path.name)
        except OSError:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(folder)


def open_folder(path: Path) -> int:
    """Return a descriptor of a folder, made where it is not there. Raises OSError.

    Links are followed that are this user's or root's, or lie where nobody else may write.
    """
    rest, links = deque(path.absolute().parts[1:]), 0
    at = os.open("/", _FOLDER)
    try:
        while rest:
            name = rest.popleft()
            target = _link(at, name)
            if target is None:
                at = _entered(at, name)
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                at = _replaced(at, os.open("/", _FOLDER))
            rest.extendleft(reversed([part for part in target.split("/") if part]))
        return at
    except BaseException:
        os.close(at)
        raise


def _link(folder: int, name: str) -> str | None:
    """Return where a link in a folder leads; None for what is none. Raises OSError for a trap."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    _refuse_stranger(found, os.fstat(folder), f"{name} is a link of")
    return os.readlink(name, dir_fd=folder)


def _entered(folder: int, name: str) -> int:
    """Return a folder inside another, which is closed; it is made where it is not there."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # made meanwhile: it is looked at below
            os.mkdir(name, 0o777, dir_fd=folder)
        inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        if name != "..":
            _refuse_stranger(os.fstat(inner), os.fstat(folder), f"{name} belongs to")
    except OSError:
        os.close(inner)
        raise
    return _replaced(folder, inner)


def _replaced(before: int, after: int) -> int:
    os.close(before)
    return after


def _refuse_strange_file(found: os.stat_result, folder: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):  # /dev/null, say
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
    _refuse_stranger(found, folder, f"{name} belongs to")


def _refuse_stranger(found: os.stat_result, folder: os.stat_result, what: str) -> None:
    """Raise OSError for what another user has put where everybody may write."""
    user = os.geteuid()
    trusted = (user, 0) if user else (0, _NOBODY)
    if folder.st_mode & stat.S_IWOTH and found.st_uid not in trusted:
        raise PermissionError(
            errno.EACCES,
            f"{what} another user (uid {found.st_uid}), and everybody may write beside it",
        )
