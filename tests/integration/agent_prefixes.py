"""What an agent that is killed may leave of its memory of jobs: each prefix of its commits."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

_DATABASE = "jobs.sqlite"
# https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
# Of a header: the size of a page; of a frame: how large the database is after a commit, else 0.
_PAGE_BYTES = struct.Struct(">8xI")
_COMMITTED = struct.Struct(">4xI")


class AgentMemory:
    """The database of an agent that runs, which is copied as it was after any of its commits."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / _DATABASE
        self._wal = folder / f"{_DATABASE}-wal"
        self._before = len(self._commits())

    def prefixes(self, to: Path) -> Iterator[Path]:
        """Make a folder for each commit since the beginning, and for none of them."""
        for number, size_bytes in enumerate(self._commits()[self._before - 1 :]):
            folder = to / f"after-{number}"
            folder.mkdir()
            shutil.copy(self._database, folder)
            (folder / self._wal.name).write_bytes(self._wal.read_bytes()[:size_bytes])
            yield folder

    def _commits(self) -> list[int]:
        """Return where each commit ends in the log, which begins anew after 250 pages only."""
        log = self._wal.read_bytes()
        (page_bytes,) = _PAGE_BYTES.unpack_from(log)
        found, at = [], _WAL_HEADER_BYTES
        while at < len(log):
            (committed,) = _COMMITTED.unpack_from(log, at)
            at += _FRAME_HEADER_BYTES + page_bytes
            if committed:
                found.append(at)
        return found
