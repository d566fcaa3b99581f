"""The messages with which two agents exchange a copy, and what may happen to these at each."""

from dataclasses import dataclass

_LET_IN = (("Hello", 1), ("Challenge", 1), ("Proof", 1))
_MOVED = (("Hello", 3), ("Join", 1), ("Joined", 1), ("Stripe", 1), ("Stripe", 2))
_ENDED = (("End", 1), ("End", 2), ("Stored", 1), ("Mismatch", 1))
# What a replica travels with, and what a restore on another node does, in their order. The second
# (of a fetch the third) Hello is that of one more connection.
PUT = (*_LET_IN, ("Put", 1), ("Accept", 1), ("Hello", 2), *_MOVED[1:], *_ENDED)
FETCH = (
    *(*_LET_IN, ("Manifests", 1), ("Manifest", 1), ("Hello", 2), ("Challenge", 2), ("Proof", 2)),
    *(("Get", 1), ("Offer", 1), ("Accept", 1), *_MOVED, *_ENDED),
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
