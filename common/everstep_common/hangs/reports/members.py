"""Members of a process group as text: runs of ranks with one distance, "0-7", "1-13:4", "0-3,9"."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from everstep_common.quantities import RANKS_MAX

# What the text of one group may take in a report; runs of any regular group take far less.
TEXT_MAX = 400
_DIGEST = "sha256:"
_NAME = "group:"


class MembersError(ValueError):
    """A text names no members."""


def members_text(ranks: Iterable[int]) -> str:
    """Return ranks as text; their digest where that is longer than a report has room for."""
    text = ",".join(_runs(sorted(set(ranks))))
    if len(text) <= TEXT_MAX:
        return text
    return _DIGEST + hashlib.sha256(text.encode()).hexdigest()


def unnamed_members(group: str) -> str:
    """Return what stands for members that nobody has told: the group's name."""
    return _NAME + group[: TEXT_MAX - len(_NAME)].replace("\0", "")


def are_named(text: str) -> bool:
    """Return whether a text names members, and does not only stand for them."""
    return not text.startswith((_DIGEST, _NAME))


def _runs(ranks: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(ranks):
        step, end = _run(ranks, start)
        yield _run_text(ranks[start], ranks[end], step)
        start = end + 1


def _run(ranks: Sequence[int], start: int) -> tuple[int, int]:
    """Return the distance and the last place of the run that begins at a place."""
    if start + 1 == len(ranks):
        return 1, start
    step = ranks[start + 1] - ranks[start]
    end = start + 1
    while end + 1 < len(ranks) and ranks[end + 1] - ranks[end] == step:
        end += 1
    # Two ranks apart are no run: "0,9" leaves the second to the run that may follow.
    return (step, end) if end > start + 1 or step == 1 else (1, start)


def _run_text(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"


def members_of(text: str) -> tuple[int, ...]:
    """Return the ranks that a text names, in ascending order. Raises MembersError.

    A short text can name 200,000 ranks: who reads many of them counts what they take.
    """
    ranks: list[int] = []
    for run in text.split(","):
        found = _ranks_of(run)
        if ranks and found[0] <= ranks[-1]:
            raise MembersError(f"members {text!r:.80}: expected ascending ranks")
        ranks.extend(found)
    return tuple(ranks)


def _ranks_of(run: str) -> range:
    span, _, step_text = run.partition(":")
    first_text, dash, last_text = span.partition("-")
    numbers = [first_text, last_text if dash else first_text, step_text or "1"]
    if not all(one.isascii() and one.isdigit() and len(one) <= 7 for one in numbers):
        raise MembersError(f"members: {run!r:.80} is no run of ranks such as 0-7 or 1-13:4")
    first, last, step = map(int, numbers)
    if step < 1 or not first <= last < RANKS_MAX:
        raise MembersError(f"members: {run!r:.80} is no run of ranks below {RANKS_MAX}")
    return range(first, last + 1, step)
