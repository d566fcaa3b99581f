"""Multi-line log records: reorders their fields, so that a message's writer is known before it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from everstep_agent.detectors.kernel.logs.log_formats import FIELD_NEEDLES, MESSAGE_KEYS


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """A line of a file; lines count from 1."""

    number: int
    text: str


_KEY = re.compile(r'^(?:> ?|\s)*(?:"(\w{1,64})"\s*:|(_{0,2}[A-Z][A-Z0-9_]{1,63})=)')
# A line that begins or ends a record of `journalctl -o export`, `json-pretty` or `verbose`.
_BORDER = re.compile(r"^(?:> ?|\s)*(?:$|[\[\]{},\s]+$|\{.*\}|__CURSOR=|\S.{10,60} \[s=\w{1,64};i=)")
# More of the fields that are read here than any real record has: bounds what is held back.
_FIELDS_MAX = 64


@dataclass(slots=True)
class LogRecords:
    """Puts the message of a record behind its other fields, whatever their order in the log is.

    ``seen``: there are such records, and lines that say nothing by themselves may end one.
    """

    seen: bool = False
    _fields: list[NumberedLine] = field(default_factory=list)
    _messages: list[NumberedLine] = field(default_factory=list)

    def note_records(self, text: str) -> None:
        """Take note of whether a piece of a log has records of several lines."""
        self.seen = self.seen or any(needle in text for needle in FIELD_NEEDLES)

    def ordered(
        self, lines: Iterable[NumberedLine], worth: frozenset[int]
    ) -> Iterator[NumberedLine]:
        """Yield what is worth reading, by its place, and an empty line between two records."""
        for place, line in enumerate(lines):
            if _BORDER.match(line.text):
                yield from self.rest()
                yield NumberedLine(line.number, "")
            if place in worth:
                yield from self._kept(line)

    def rest(self) -> Iterator[NumberedLine]:
        """Yield what is left of the last record."""
        yield from self._fields
        yield from self._messages
        self._fields.clear()
        self._messages.clear()

    def _kept(self, line: NumberedLine) -> Iterator[NumberedLine]:
        key = _KEY.match(line.text)
        if key is None:
            yield line
            return
        is_message = (key[1] or key[2]) in MESSAGE_KEYS
        (self._messages if is_message else self._fields).append(line)
        if len(self._messages) + len(self._fields) >= _FIELDS_MAX:
            yield from self.rest()
