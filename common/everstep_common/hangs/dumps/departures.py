"""Departures: what a rank did otherwise than each time before, by its own operations. Pure.

A rank that leaves out an operation goes on with what comes after it. The frontiers of the others
tell that something is wrong, but not who: the rank's own history does.
"""

from collections.abc import Sequence

# How many operations before one decide which comes next, and how often they must have done so.
_CONTEXT_MAX = 6
_TIMES = 3


def departure_of(operations: Sequence[tuple[str, bool]]) -> str:
    """Return in words what a rank did that it never did at that place, "" where nothing.

    ``operations`` are all that it recorded, oldest first, with whether each is done. Only the first
    one that is not done is asked about: the rank stands there.
    """
    labels = [label for label, _ in operations]
    at = next((place for place, (_, done) in enumerate(operations) if not done), None)
    if at is None:
        return ""
    for length in range(min(_CONTEXT_MAX, at), 0, -1):
        context = labels[at - length : at]
        followed = [
            labels[place + length]
            for place in range(at - length)
            if labels[place : place + length] == context
        ]
        if len(followed) >= _TIMES and len(set(followed)) == 1:
            usual = followed[0]
            if usual == labels[at]:
                return ""
            return f"{labels[at]} where {usual} came the {len(followed)} times before"
    return ""
