"""Journal lock: one controller at a time uses a journal's file."""

import fcntl
import os
from pathlib import Path
from types import TracebackType

from everstep_controller.journal.port import JournalLockedError


class JournalLock:
    """Holds ``<journal>.lock`` while open.

    Not the database itself: closing any descriptor of that file would drop SQLite's own locks.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(journal.name + ".lock")
        self._fd = -1

    def __enter__(self) -> "JournalLock":
        """Take the lock. Raises JournalLockedError when another process has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise JournalLockedError(
                f"{self._path}: another controller (process {holder}) uses this journal; "
                "stop it first, or configure another journal"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop the lock."""
        os.close(self._fd)
        self._fd = -1
