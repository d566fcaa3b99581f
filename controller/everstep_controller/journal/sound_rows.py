"""Sound rows: what is read of a journal is as it was written, or is said to be damaged.

Both kinds of journal give their rows the same checksums, so both judge them here.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from everstep_controller.journal.checksums import checksum
from everstep_controller.journal.port import Announcement, HistoryKind, HistoryRow

logger = logging.getLogger(__name__)

# Reason of a line of the event list whose row is damaged.
DAMAGED = "LineDamaged"
_CHANGED = "its row is not as it was written"


def sound_history(rows: Iterable[tuple[Any, ...]]) -> Iterator[HistoryRow]:
    """Yield those that are as they were written."""
    for kind, key, begin_ns, at_ns, content, told in rows:
        if checksum(kind, key, begin_ns, at_ns, content) != told:
            logger.error(
                "the %s of %s at %s is left out of the history: its row is not as it was written",
                kind,
                key,
                begin_ns,
            )
            continue
        yield HistoryRow(HistoryKind(kind), key, begin_ns, at_ns, bytes(content))


def line_of(row: tuple[Any, ...]) -> Announcement:
    """Return a line of the event list; of one that is damaged, that it is."""
    *content, told = row
    if checksum(*content) == told:
        return Announcement(*content)
    # A damaged file may have anything in a column.
    number, seq, at_ns = (value if isinstance(value, int) else 0 for value in content[:3])
    return Announcement(number, seq, at_ns, str(content[3]), DAMAGED, _CHANGED)


def with_about(line: Announcement, about: bytes | None, told: bytes | None) -> Announcement:
    """Return a line with what programs are told of it, unless one of the two is damaged."""
    if about is None or checksum(line.id, about) != told or line.reason == DAMAGED:
        return line
    return replace(line, about=about)
