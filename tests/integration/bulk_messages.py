"""The messages with which two agents exchange a copy, and what may happen to these at each."""

from dataclasses import dataclass

_LET_IN = (("TransferHello", 1), ("Challenge", 1), ("Proof", 1))
_MOVED = (
    ("TransferHello", 3),
    ("JoinTransfer", 1),
    ("TransferJoined", 1),
    ("Stripe", 1),
    ("Stripe", 2),
)
_ENDED = (("End", 1), ("End", 2), ("CopyStored", 1), ("HashMismatch", 1))
# What a replica travels with, and what a restore on another node does, in their order. The second
# (of a fetch the third) TransferHello is that of one more connection.
PUT = (*_LET_IN, ("PutCopy", 1), ("SendStripes", 1), ("TransferHello", 2), *_MOVED[1:], *_ENDED)
FETCH = (
    *(
        *_LET_IN,
        ("GetManifests", 1),
        ("ManifestReply", 1),
        ("TransferHello", 2),
        ("Challenge", 2),
        ("Proof", 2),
    ),
    *(("GetCopy", 1), ("CopyOffer", 1), ("SendStripes", 1), *_MOVED, *_ENDED),
)


@dataclass(frozen=True)
class Blow:
    """The agent of one end is killed at a message: before (``held``) or after it goes on."""

    at: str
    nth: int
    held: bool
    sender: bool


def blows(messages: tuple[tuple[str, int], ...]) -> list[Blow]:
    """Return all that may happen in one exchange."""
    return [
        Blow(at, nth, held, sender)
        for at, nth in messages
        for held in (True, False)
        for sender in (True, False)
    ]
