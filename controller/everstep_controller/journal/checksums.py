"""Journal checksums: what each row carries, so that a bit that changes on the disk is noticed.

Each event's row carries the checksum of its content and of the row before it: one that is changed,
lost or doubled breaks the chain, whose newest link is written down beside it. Other rows carry the
checksum of their own content.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from everstep_controller.journal.port import DamagedJournalError, StoredEvent

# The link before the first row.
BEGINNING = b""
# A change of any bits is missed once in 2^64.
_BYTES = 8
_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the chain of events begins and ends: numbers and links of these rows.

    Rows up to its beginning are deleted by now, or were written by a version without a chain.
    """

    seq: int
    link: bytes
    base_seq: int
    base_link: bytes

    def reaches(self, through: int | None) -> bool:
        """Return whether rows up to an event are all rows."""
        return through is None or through >= self.seq


def checksum(*values: object) -> bytes:
    """Return the checksum of a row's values, each with its type; also a function of the SQL."""
    return blake2b(_ENCODER.encode(values), digest_size=_BYTES).digest()


def linked(link: bytes, event: StoredEvent) -> bytes:
    """Return the link of an event after that of the row before it."""
    return checksum(link, event.seq, event.now_ns, event.kind, event.body)


def links(link: bytes, events: Iterable[StoredEvent]) -> Iterator[tuple[StoredEvent, bytes]]:
    """Yield events, each with its link."""
    for event in events:
        link = linked(link, event)
        yield event, link


def verified(
    rows: Iterable[tuple[StoredEvent, bytes | None]],
    chain: Chain,
    link: bytes,
    after: int,
    *,
    whole: bool,
) -> Iterator[StoredEvent]:
    """Yield events that follow a row with ``link``. Raises DamagedJournalError for what is wrong.

    ``whole``: they must go on to the end of the chain.
    """
    last = max(after, chain.base_seq)
    for event, told in rows:
        if event.seq > chain.base_seq or told is not None:
            last, link = event.seq, linked(link, event)
            if link != told:
                raise DamagedJournalError(
                    f"event {event.seq} ({event.kind!s:.40}), or the one before it, is not as it "
                    "was written"
                )
        yield event
    if whole and last < chain.seq:
        raise DamagedJournalError(f"events {last + 1} to {chain.seq} are missing")
    if whole and after < last and (last, link) != (chain.seq, chain.link):
        raise DamagedJournalError(f"event {last} is not the one that was written last")
