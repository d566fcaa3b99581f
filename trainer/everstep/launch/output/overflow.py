"""Overflow file for output that nobody reads: bounded in size, and removed later."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from everstep.launch.output.log_files import open_folder

# Of both files together. A day of 16 ranks that print a line a second is half of it.
FILE_BYTES_MAX = 256 * 1024 * 1024
# What an earlier launcher has left is removed by the next one that needs such a file.
_LEFT_S = 7 * 86_400.0
_PREFIX, _SUFFIX = "everstep-output-", ".txt"


class Overflow:
    """File of the newest output that no reader took; made on demand, in a folder or else in /tmp.

    When it is half full it is put aside, in the place of what was put aside before.
    """

    def __init__(
        self,
        folder: Path | None,
        number: int,
        bytes_max: int = FILE_BYTES_MAX,
        fallback: Path | None = None,
    ) -> None:
        """``number`` is of the launcher's process; ``fallback`` takes the place of /tmp."""
        self._folder = folder
        self._fallback = fallback
        self._number = number
        self._half = bytes_max // 2
        self._fd = -1
        # Bytes in the file, in the one that was put aside, and those dropped with earlier files.
        self._size = self._aside_size = 0
        self.dropped_bytes = 0
        self.path = ""
        self.lost_bytes = 0

    @property
    def place(self) -> str:
        """Return where it is, for people."""
        aside = f" (before that, {self._aside})" if self._aside_size else ""
        dropped = f"; the oldest {self.dropped_bytes} bytes are gone" if self.dropped_bytes else ""
        lost = f"; no disk took {self.lost_bytes} bytes" if self.lost_bytes else ""
        return f"{self.path}{aside}{dropped}{lost}"

    def write(self, data: bytes) -> None:
        """Keep it, if a disk takes it."""
        try:
            if self._fd < 0:
                self._open()
            elif self._size + len(data) > self._half:
                self._put_aside()
            self._size += len(data)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.lost_bytes += len(data)

    def remove(self) -> None:
        """Nobody needs it any more."""
        for path in (self.path, self._aside):
            with contextlib.suppress(OSError):
                os.unlink(path)

    @property
    def _aside(self) -> str:
        return f"{self.path}.old"

    def _put_aside(self) -> None:
        os.replace(self.path, self._aside)
        os.close(self._fd)
        self.dropped_bytes += self._aside_size
        self._aside_size, self._size, self._fd = self._size, 0, -1
        self._open()

    def _open(self) -> None:
        if self.path:  # that of what was put aside, which is found by it
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        else:
            self._fd, self.path = self._made()

    def _made(self) -> tuple[int, str]:
        prefix = f"{_PREFIX}{self._number}-"
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.close(open_folder(self._folder))
                return _tidied(*tempfile.mkstemp(_SUFFIX, prefix, self._folder))
        return _tidied(*tempfile.mkstemp(_SUFFIX, prefix, self._fallback))


def _tidied(fd: int, path: str) -> tuple[int, str]:
    """Remove what this user's launchers have left beside a new file long ago."""
    now_s = os.fstat(fd).st_mtime
    for other in Path(path).parent.glob(f"{_PREFIX}*{_SUFFIX}*"):
        with contextlib.suppress(OSError):
            found = other.lstat()
            mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if mine and now_s - found.st_mtime > _LEFT_S:
                other.unlink()
    return fd, path
