"""Cursor file of a webhook: how far in the event list it has come, beside the journal.

It is no event, and nothing is decided by it. A backup of the journal has none with it.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BYTES_MAX = 4096


class CursorError(Exception):
    """A cursor cannot be read; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Place in the event list of a cluster up to which a webhook is done."""

    cluster: str
    number: int
    # Where the digest ends that was being sent; 0: there was none.
    digest_through: int = 0


@dataclass(frozen=True, slots=True)
class CursorFile:
    """File with a cursor, which is replaced whole."""

    path: Path

    def read(self) -> Cursor | None:
        """Return what was written last; None before the first. Raises CursorError."""
        try:
            with open(self.path, "rb") as file:
                text = file.read(_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CursorError(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            stored = json.loads(text)
            cursor = Cursor(stored["cluster"], stored["number"], stored["digest_through"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CursorError(f"{self.path} has no cursor in it") from error
        numbers = (cursor.number, cursor.digest_through)
        if type(cursor.cluster) is not str or not all(type(n) is int and n >= 0 for n in numbers):
            raise CursorError(f"{self.path} has no cursor in it")
        return cursor

    def write(self, cursor: Cursor) -> None:
        """Keep a cursor durably. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(
            {
                "cluster": cursor.cluster,
                "number": cursor.number,
                "digest_through": cursor.digest_through,
            }
        )
        beside = self.path.with_suffix(".tmp")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, self.path)
        with suppress(OSError):  # some file systems have no fsync of folders: rename is in order
            _sync_folder(self.path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
