"""Ownership of paths: who could have made, or could replace, what a path leads to."""

import grp
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

_BY_OTHERS = stat.S_IRWXO
# "nobody", by which the kernel names all users that a user namespace does not have.
_UNKNOWN = 65534


class UntrustedError(Exception):
    """What was found may be somebody else's; one sentence says what, whose, and what to do."""


def trusted_owner(path: Path) -> int:
    """Return the uid whose a path is, which is trusted.

    Trusted are root and the user of this process, and whoever root has given a folder to: the
    folder lies in one that only root may write. Raises UntrustedError, and OSError of what is
    missing or may not be looked at.
    """
    _walk(Path(os.path.abspath(path)))
    return _walk(Path(os.path.realpath(path)))


def _walk(path: Path) -> int:
    trusted, given = {0, os.geteuid()}, False
    owner = 0
    for part in [*reversed(path.parents), path]:
        status = os.lstat(part)
        owner, mode = status.st_uid, status.st_mode
        if owner not in trusted and (owner == _UNKNOWN or not given):
            raise UntrustedError(
                f"{part} belongs to {user_name(owner)}, who is neither root nor the user of this "
                "process, and could put anything there; choose another path, or have root make "
                f"the folder: 'install -d -o {user_name(owner)} -m 0750 FOLDER'"
            )
        is_folder = stat.S_ISDIR(mode)
        if is_folder and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UntrustedError(f"every user may write {part}; 'chmod o-w {part}' ends that")
        trusted.add(owner)
        given = is_folder and owner == 0 and not mode & (stat.S_IWGRP | stat.S_IWOTH)
    return owner


def open_to_others(folder: Path) -> bool:
    """Return whether others than the owner and the group may do anything in a folder."""
    return bool(folder.stat().st_mode & _BY_OTHERS)


def share_with_group(path: Path, rights: int) -> None:
    """Give the group of a folder that may enter it rights to a file in it, such as S_IRGRP.

    Raises OSError.
    """
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IXGRP:
        with suppress(PermissionError):  # of one who is not in that group: the file is his own
            # A unit may forbid the call, also where it changes nothing (systemd: @chown).
            if path.stat().st_gid != folder.st_gid:
                os.chown(path, -1, folder.st_gid)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | rights)


def user_name(uid: int) -> str:
    """Return the name of a user, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def group_name(gid: int) -> str:
    """Return the name of a group, or its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"gid {gid}"


def closed_to_us(path: Path) -> UntrustedError:
    """Return why this process may not look at a path: the group that it has to be in."""
    for folder in reversed(path.parents):
        try:
            status = folder.stat()
        except OSError:
            break
        if not os.access(folder, os.X_OK):
            return _not_a_member(folder, status)
    try:
        return _not_a_member(path, path.stat())
    except OSError as error:
        return UntrustedError(f"{path} cannot be looked at: {error.strerror}")


def _not_a_member(path: Path, status: os.stat_result) -> UntrustedError:
    owner, group = user_name(status.st_uid), group_name(status.st_gid)
    if not status.st_mode & stat.S_IRWXG:
        return UntrustedError(
            f"{path} is open to {owner} only; be that user, or ask a controller with certificates"
        )
    me = user_name(os.geteuid())
    return UntrustedError(
        f"{path} is open to {owner} and the group {group} only, and {me} is not in it; have root "
        f"add you ('usermod -aG {group} {me}', then log in again), or ask a controller with "
        "certificates"
    )
