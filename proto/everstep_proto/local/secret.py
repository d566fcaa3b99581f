"""Secret of a controller that listens on loopback without certificates: a file of 32 random bytes.

Its owner and, where the folder admits it, its group may read it. Agents and operators show it in
the metadata of each call.
"""

import hmac
import logging
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_proto.local.ownership import (
    UntrustedError,
    closed_to_us,
    share_with_group,
    trusted_owner,
    user_name,
)

logger = logging.getLogger(__name__)

METADATA_KEY = "everstep-secret"
_WRITTEN = re.compile(r"[0-9a-f]{64}\n?")
_READ_MAX = 100
# What nobody but the owner may do, besides reading by the group.
_TOO_OPEN = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


@dataclass(frozen=True, slots=True)
class Secret:
    """The secret in a file, and the uid whose file it is."""

    value: str
    owner: int

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what a call carries."""
        return ((METADATA_KEY, self.value),)


def read_secret(path: Path) -> Secret:
    """Read a secret that only its owner and group know. Raises UntrustedError."""
    try:
        folder_owner = trusted_owner(path.parent)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        raise closed_to_us(path) from error
    except OSError as error:
        raise UntrustedError(
            f"the secret {path} cannot be read: {error.strerror}; the controller makes it when it "
            "starts: name the same secret_file (--secret-file) on both sides"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        _check(path, status, {0, os.geteuid(), folder_owner})
        text = file.read(_READ_MAX).decode("ascii", errors="replace")
    if not _WRITTEN.fullmatch(text):
        raise UntrustedError(
            f"the secret {path} is not 64 hexadecimal digits; remove it and restart the controller"
        )
    return Secret(text.strip(), status.st_uid)


def _check(path: Path, status: os.stat_result, owners: set[int]) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError(f"the secret {path} is not a file; remove it")
    if status.st_uid not in owners:
        raise UntrustedError(
            f"the secret {path} belongs to {user_name(status.st_uid)}, who is not the owner of its "
            "folder; remove it and restart the controller"
        )
    if status.st_mode & _TOO_OPEN:
        raise UntrustedError(
            f"the secret {path} has the mode {stat.S_IMODE(status.st_mode):04o}, by which others "
            f"may read or change it; 'rm {path}', and restart the controller, which makes another"
        )


def make_secret(path: Path) -> None:
    """Make a secret where there is none, whole or not at all. Raises UntrustedError, OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    trusted_owner(path.parent)
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(secrets.token_hex(32).encode() + b"\n")
            file.flush()
            share_with_group(draft, stat.S_IRGRP)
            os.fsync(file.fileno())
        # Unlike a rename, this replaces nothing: of two that start at once, one makes it.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SecretFile:
    """A secret on the side that compares; a file that was replaced counts from the next call on."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises UntrustedError."""
        self.path = path
        self._seen = self._look()
        self._value = read_secret(path).value.encode()

    def matches(self, given: str | bytes) -> bool:
        """Return whether a caller knows the secret; takes the same time for all that do not."""
        self._renew()
        told = given.encode() if isinstance(given, str) else given
        return hmac.compare_digest(told, self._value)

    def _renew(self) -> None:
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._value = read_secret(self.path).value.encode()
        except UntrustedError as error:
            logger.warning("keeping the secret that was read before: %s", error)
        else:
            logger.info("the secret %s was replaced: only the new one counts now", self.path)

    def _look(self) -> tuple[int, int, int]:
        try:
            status = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
