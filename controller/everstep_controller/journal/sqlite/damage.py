"""Damage to a journal's file: bits that changed on the disk, found before anything is read of it.

SQLite takes a write-ahead log for ended where a checksum in it is wrong: that is how it knows a
transaction that a crash has torn. So a changed bit in the middle would silently cost all that was
committed after it. The transactions behind such a place show that it is no torn end.
"""

import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from everstep_controller.journal.port import DamagedJournalError, JournalRefusedError

# https://www.sqlite.org/fileformat2.html#the_write_ahead_log
_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682
_WORD = 0xFFFFFFFF
# https://www.sqlite.org/fileformat2.html#file_format_version_numbers
_SQLITE, _MODE_AT, _WITHOUT_LOG = b"SQLite format 3\0", 18, b"\1"
# A crash tears one transaction, the last; it was not acknowledged to anybody.
_TORN_MAX = 1
# Tables of which every row counts, and that are small enough to be looked at whole at each start.
_TABLES = ("head", "fact", "mark", "rejection", "announcement")


def verify_tables(db: sqlite3.Connection) -> None:
    """Look whether the small tables and their indexes are whole. Raises DamagedJournalError."""
    for table in _TABLES:
        (found,) = db.execute(f"PRAGMA integrity_check('{table}')").fetchone()
        if found != "ok":
            raise DamagedJournalError(f"its table '{table}' is damaged: {found:.200}")


def verify_whole(db: sqlite3.Connection) -> None:
    """Look at every page of the file. Raises DamagedJournalError."""
    (found,) = db.execute("PRAGMA integrity_check").fetchone()
    if found != "ok":
        raise DamagedJournalError(f"the file is damaged: {found:.200}")


class ForeignLogError(JournalRefusedError):
    """A log lies beside the journal that is another database's; the message says what to do."""


def verify_log(journal: Path) -> None:
    """Look whether the write-ahead log is the journal's, and does not break off before its end.

    It must be called before the journal is opened: whoever closes it last removes the log. Raises
    DamagedJournalError, ForeignLogError.
    """
    log_path = journal.with_name(f"{journal.name}-wal")
    try:
        text = log_path.read_bytes()
    except FileNotFoundError:
        return
    if text and _has_no_log(journal):
        raise ForeignLogError(
            f"{journal} is a copy that was put beside {log_path}, the log of another database, "
            f"which SQLite would mix into it; nothing was changed. Remove the log: rm {log_path} "
            f"{journal.with_name(f'{journal.name}-shm')}"
        )
    if len(text) < _HEADER.size or not any(text[: _HEADER.size]):
        return  # begun by a controller that was killed before it wrote anything
    log = _Log.of(text)
    broken, commits_behind = None, 0
    for number, (sound, commits) in enumerate(log.frames(text), start=1):
        if not sound and broken is None:
            broken = number
        commits_behind += broken is not None and commits
    if commits_behind > _TORN_MAX:
        raise DamagedJournalError(
            f"its write-ahead log is damaged at page {broken}, and {commits_behind} transactions "
            "that were committed behind it cannot be read"
        )


def _has_no_log(journal: Path) -> bool:
    """Return whether a database was written to the end without a write-ahead log, as a backup is.

    A controller's own says in its header that it has one before the first page is in that.
    """
    try:
        with journal.open("rb") as file:
            header = file.read(_MODE_AT + 1)
    except FileNotFoundError:
        return False
    return header.startswith(_SQLITE) and header[_MODE_AT:] == _WITHOUT_LOG


@dataclass(frozen=True, slots=True)
class _Log:
    """Header of a write-ahead log: how it is to be read."""

    page_bytes: int
    salts: tuple[int, int]
    words: str
    sums: tuple[int, int]

    @classmethod
    def of(cls, text: bytes) -> "_Log":
        magic, _, page_bytes, _, *rest = _HEADER.unpack_from(text)
        words = ">u4" if magic & 1 else "<u4"
        log = cls(page_bytes, (rest[0], rest[1]), words, (rest[2], rest[3]))
        right = _Sums(words, _HEADER.size - 8).add_content((0, 0), text[: _HEADER.size - 8])
        if magic & ~1 != _MAGIC or right != log.sums:
            raise DamagedJournalError("the header of its write-ahead log is damaged")
        return log

    def frames(self, text: bytes) -> Iterator[tuple[bool, bool]]:
        """Yield of each page whether it is sound, and whether a transaction of this log ends there.

        Pages of an older log, with other salts, are behind those that were written over it.
        """
        sums, chain = _Sums(self.words, 8 + self.page_bytes), self.sums
        size = _FRAME.size + self.page_bytes
        for at in range(_HEADER.size, len(text) - size + 1, size):
            _, pages, *salts, first, second = _FRAME.unpack_from(text, at)
            content = text[at : at + 8] + text[at + _FRAME.size : at + size]
            right = sums.add_content(chain, content) == (first, second)
            # One whose own sums are wrong does not make those behind it wrong as well.
            chain = (first, second)
            ours = tuple(salts) == self.salts
            yield right and ours, ours and pages != 0


class _Sums:
    """Checksum of so many bytes, as SQLite takes it: two sums, to which the words go in turns.

    Each word adds the other sum as well. So both are sums of all words, each times the number of
    Fibonacci's that belongs to its place.
    """

    def __init__(self, words: str, size: int) -> None:
        pairs, self._words = size // 8, words
        numbers = [0, 1]
        while len(numbers) < 2 * pairs + 2:
            numbers.append((numbers[-1] + numbers[-2]) & _WORD)
        every = np.array(numbers, np.uint32)
        # From the last pair to the first.
        self._weights = [every[first::2][:pairs][::-1].copy() for first in (0, 1, 2)]
        self._before = numbers[2 * pairs - 1 : 2 * pairs + 2]

    def add_content(self, sums: tuple[int, int], content: bytes) -> tuple[int, int]:
        """Return the sums after the content, from those before it."""
        words = np.frombuffer(content, self._words).astype(np.uint32)
        (least, middle, most), (first, second) = self._weights, (words[::2], words[1::2])
        low, half, high = self._before
        one = low * sums[0] + half * sums[1] + int(middle @ first) + int(least @ second)
        other = half * sums[0] + high * sums[1] + int(most @ first) + int(middle @ second)
        return one & _WORD, other & _WORD
