"""Owned files: keys and certificates, each written whole or not at all, for one owner alone."""

import os
from pathlib import Path


def replace_file(
    path: Path, content: bytes, mode: int = 0o600, owner: os.stat_result | None = None
) -> None:
    """Write a file in the place of one, which is there whole at each moment. Raises OSError.

    Where this is root, it belongs to ``owner``, or to who owned the one before.
    """
    before = owner
    if before is None and path.exists():
        before = path.stat()
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.geteuid() == 0 and before is not None and _is_of_another(before):
            os.fchown(fd, before.st_uid, before.st_gid)
        os.fchmod(fd, mode)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_of_another(file: os.stat_result) -> bool:
    return (file.st_uid, file.st_gid) != (os.geteuid(), os.getegid())
