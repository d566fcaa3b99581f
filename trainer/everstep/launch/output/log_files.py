"""Log files: opened so that another user who may write above them leads them nowhere.

In a folder where everybody may write, or a group, a link that somebody else has put into the path
would have this user's processes write where that user wants, as would a folder with such a link in
it; a FIFO would be waited for.
"""

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Set
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As the kernel.
_LINKS_MAX = 40
# The user to whom a file server maps root.
_NOBODY = 65534
_EVERYBODY = "everybody"


def open_log(path: Path) -> int:
    """Return a descriptor that appends to a file, made with its folders. Raises OSError."""
    folder, trusted = _walk(path.parent)
    try:
        # O_NONBLOCK: a FIFO would wait for a reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path.name, flags | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            _refuse_strange_file(os.fstat(fd), os.fstat(folder), path.name, trusted)
        except OSError:
            os.close(fd)
            raise
        return fd
    finally:
        os.close(folder)


def open_folder(path: Path) -> int:
    """Return a descriptor of a folder, made where it is not there. Raises OSError.

    Links are followed that are this user's or root's, or lie where nobody may write but these and
    whoever they have given a folder of the path to. In a folder where a group may write, a folder
    of another member is gone into, but a link or a file in it must be this user's.
    """
    return _walk(path)[0]


def _walk(path: Path) -> tuple[int, set[int]]:
    """Return a descriptor of a folder, and the users who are trusted with what is in it."""
    rest, links, trusted = deque(path.absolute().parts[1:]), 0, set(_own())
    at = os.open("/", _FOLDER)
    try:
        while rest:
            name = rest.popleft()
            target = _link(at, name, trusted)
            if target is None:
                at = _entered(at, name, trusted)
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                at = _replaced(at, os.open("/", _FOLDER))
            rest.extendleft(reversed([part for part in target.split("/") if part]))
        return at, trusted
    except BaseException:
        os.close(at)
        raise


def _link(folder: int, name: str, trusted: Set[int]) -> str | None:
    """Return where a link in a folder leads; None for what is none. Raises OSError for a trap."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(found.st_mode):
        return None
    _refuse_stranger(found, os.fstat(folder), f"{name} is a link of", trusted)
    return os.readlink(name, dir_fd=folder)


def _entered(folder: int, name: str, trusted: set[int]) -> int:
    """Return a folder inside another, which is closed; it is made where it is not there.

    Its owner is trusted as well where nobody else could have put it there.
    """
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # made meanwhile: it is looked at below
            os.mkdir(name, 0o777, dir_fd=folder)
        inner = os.open(name, _FOLDER, dir_fd=folder)
    try:
        if name != "..":
            _trust_owner(os.fstat(inner), os.fstat(folder), name, trusted)
    except OSError:
        os.close(inner)
        raise
    return _replaced(folder, inner)


def _replaced(before: int, after: int) -> int:
    os.close(before)
    return after


def _trust_owner(inner: os.stat_result, folder: os.stat_result, name: str, also: set[int]) -> None:
    writers = _other_writers(folder, also)
    if writers == _EVERYBODY and inner.st_uid not in _own():
        raise _refusal(f"{name} belongs to", inner.st_uid, writers)
    if not writers:
        also.add(inner.st_uid)


def _refuse_strange_file(
    found: os.stat_result, folder: os.stat_result, name: str, trusted: Set[int]
) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISCHR(found.st_mode):  # /dev/null, say
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
    _refuse_stranger(found, folder, f"{name} belongs to", trusted)


def _refuse_stranger(
    found: os.stat_result, folder: os.stat_result, what: str, trusted: Set[int]
) -> None:
    """Raise OSError for what another user has put where others than the trusted may write."""
    writers = _other_writers(folder, trusted)
    accepted = _own() if writers == _EVERYBODY else trusted
    if writers and found.st_uid not in accepted:
        raise _refusal(what, found.st_uid, writers)


def _own() -> tuple[int, int]:
    user = os.geteuid()
    return (user, 0) if user else (0, _NOBODY)


def _other_writers(folder: os.stat_result, trusted: Set[int]) -> str:
    """Return who may write in a folder besides the trusted; empty for nobody."""
    if folder.st_mode & stat.S_IWOTH:
        return _EVERYBODY
    if folder.st_mode & stat.S_IWGRP:
        return f"its group (gid {folder.st_gid})"
    return "" if folder.st_uid in trusted else "that user"


def _refusal(what: str, uid: int, writers: str) -> PermissionError:
    return PermissionError(
        errno.EACCES, f"{what} another user (uid {uid}), and {writers} may write beside it"
    )
