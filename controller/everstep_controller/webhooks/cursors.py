"""Cursors of webhooks: how far in the event list each has come, beside the journal or in it.

A cursor is no event, and nothing is decided by it. Beside a journal in a file it is a file of its
own, which a backup does not have; in a database it is a fact of the journal, for whoever succeeds.
"""

import json
import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_controller.journal.port import JournalReader, JournalWriter

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


def encoded(cursor: Cursor) -> bytes:
    """Return a cursor as it is kept."""
    told = {
        "cluster": cursor.cluster,
        "number": cursor.number,
        "digest_through": cursor.digest_through,
    }
    return json.dumps(told).encode()


def decoded(text: bytes, where: str) -> Cursor:
    """Return the cursor that was kept somewhere. Raises CursorError."""
    try:
        stored = json.loads(text)
        cursor = Cursor(stored["cluster"], stored["number"], stored["digest_through"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CursorError(f"{where} has no cursor in it") from error
    numbers = (cursor.number, cursor.digest_through)
    if type(cursor.cluster) is not str or not all(type(n) is int and n >= 0 for n in numbers):
        raise CursorError(f"{where} has no cursor in it")
    return cursor


@dataclass(frozen=True, slots=True)
class CursorFile:
    """File with a cursor, which is replaced whole; of a controller whose journal is a file."""

    path: Path

    def __str__(self) -> str:
        """Return where it is, as people are told."""
        return str(self.path)

    def read(self) -> Cursor | None:
        """Return what was written last; None before the first. Raises CursorError."""
        try:
            with open(self.path, "rb") as file:
                text = file.read(_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CursorError(f"{self.path} cannot be read: {error.strerror}") from error
        return decoded(text, str(self.path))

    def write(self, cursor: Cursor) -> None:
        """Keep a cursor durably. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self.path.with_suffix(".tmp")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, encoded(cursor))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(beside, self.path)
        with suppress(OSError):  # some file systems have no fsync of folders: rename is in order
            _sync_folder(self.path.parent)


@dataclass(frozen=True, slots=True)
class JournalCursor:
    """Cursor in a journal that several controllers share: whoever takes over goes on from it."""

    name: str
    open_reader: Callable[[], JournalReader]
    # Have the journal write something in its turn.
    keep: Callable[[Callable[[JournalWriter], None]], None]
    # What a controller of before has kept beside its journal.
    before: CursorFile

    def __str__(self) -> str:
        """Return where it is, as people are told."""
        return "the journal"

    def read(self) -> Cursor | None:
        """Return what was written last. Raises CursorError and JournalAccessError."""
        with closing(self.open_reader()) as reader:
            kept = reader.fact(self._fact)
        return decoded(kept, str(self)) if kept is not None else self.before.read()

    def write(self, cursor: Cursor) -> None:
        """Have a cursor kept; one that the journal cannot take now is written when it can."""
        text = encoded(cursor)
        self.keep(lambda store: store.set_fact(self._fact, text))

    @property
    def _fact(self) -> str:
        return f"webhook cursor {self.name}"


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
