"""Evidence of a run: what agents noted, what the database has, and how controllers ended."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class RecordKey(NamedTuple):
    """A record of an agent: its outbox, and its number there."""

    outbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Note:
    """What a simulated node saw or did, in the order in which its process noted it."""

    at_ns: int
    node: str
    # "recorded", "ack", "welcome", "taken" or "refused" (an order), "obeyed", "away", …
    kind: str
    told: Mapping[str, object]

    def number(self, name: str) -> int:
        """Return one of its particulars that is a number."""
        value = self.told.get(name)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        """Return one of its particulars that is a text."""
        return str(self.told.get(name, ""))


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of the journal's events as it lies in the database, and the link that it has."""

    seq: int
    now_ns: int
    kind: str
    body: bytes
    link: bytes


@dataclass(frozen=True, slots=True)
class ChainEnds:
    """Where the journal says that its events begin and end."""

    base_seq: int
    base_link: bytes
    head: int
    link: bytes


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """Who wrote an event, as the database saw its connection, in the order of writing."""

    seq: int
    writer: str


@dataclass(frozen=True, slots=True)
class Taking:
    """A change of the lease's holder, in the order in which it came."""

    term: int
    # "" where it was given back.
    writer: str


@dataclass(frozen=True, slots=True)
class ControllerEnd:
    """End of a controller's process: by this run's hand, or by itself with a status and a log."""

    name: str
    life: int
    status: int
    was_killed: bool
    log: str
    # It was told to hand over.
    was_asked: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it."""

    notes: Sequence[Note]
    rows: Sequence[EventRow]
    ends: ChainEnds
    written: Sequence[WrittenRow]
    takings: Sequence[Taking]
    # Of which record each event was made, in the order of the journal.
    journaled: Sequence[RecordKey]
    # Events that a replay decides otherwise.
    differences: Sequence[str]
    replayed: int
    controllers: Sequence[ControllerEnd]


def read_notes(path: Path) -> Iterator[Note]:
    """Yield what one process noted; of one that was killed, without the line it was in."""
    for line in path.read_text(errors="replace").splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        at_ns, node, kind = (told.pop(name) for name in ("at_ns", "node", "kind"))
        yield Note(at_ns, node, kind, told)


def count_kinds(notes: Iterable[Note]) -> Mapping[str, int]:
    """Return how many notes there are of each kind."""
    return Counter(one.kind for one in notes)
