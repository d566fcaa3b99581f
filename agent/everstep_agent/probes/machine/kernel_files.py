"""Files of /proc and /sys: bounded reads of whole files, kept open where they are read often."""

import os
from pathlib import Path

# More than any file of counters that is read here; an endless one must not fill the memory.
_LONGEST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


class KeptFile:
    """A file that is read again and again: kept open, a read costs a third (measured on sysfs).

    ``at_once``: the kernel hands it out in one piece, so nobody has to ask whether there is more.
    """

    def __init__(self, path: Path, *, at_once: bool = False) -> None:
        self._path = path
        self._read = _piece if at_once else _whole
        self._descriptor = -1

    def read(self) -> bytes:
        """Return the whole file as it is now. Raises OSError."""
        if self._descriptor >= 0:
            try:
                return self._read(self._descriptor)
            except OSError:
                # Its device or process is gone; another may stand at the same path by now.
                self.close()
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._read(self._descriptor)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file; the next read opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def _piece(descriptor: int) -> bytes:
    return os.pread(descriptor, _PIECE_BYTES, 0)


def _whole(descriptor: int) -> bytes:
    piece = _piece(descriptor)
    pieces, length = [piece], len(piece)
    # The kernel hands out tables in pieces of a page; only an empty one says that it was all.
    while piece and length < _LONGEST_BYTES:
        piece = os.pread(descriptor, _PIECE_BYTES, length)
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)


def read_file(path: str | Path) -> bytes:
    """Return the first MiB of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _whole(descriptor)
    finally:
        os.close(descriptor)


def text_of(path: str | Path) -> str | None:
    """Return the only line of a small file; None where it cannot be read."""
    try:
        return read_file(path).decode("utf-8", errors="replace").strip()
    except OSError:
        return None


def number_in(path: str | Path) -> int | None:
    """Return the number in a file; None where there is none."""
    text = text_of(path)
    # More digits than any counter has would cost seconds to convert.
    if not text or len(text) > 20 or not text.removeprefix("-").isdecimal():
        return None
    return int(text)


def names_in(folder: str | Path) -> list[str]:
    """Return what a folder holds, sorted; nothing where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
