"""Stack tree: Python stacks of many ranks merged, so that who does something else stands out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from everstep_common.hangs.reports.members import members_text
from everstep_common.hangs.reports.rank_report import RankHangReport

# Ranks as text are cut to so many characters; how many there are is told beside it.
_RANKS_MAX = 60


@dataclass(frozen=True, slots=True)
class Branch:
    """Frames that ranks have in common, outermost first, and what follows below them."""

    frames: tuple[str, ...]
    ranks: tuple[int, ...]
    # Those with the most ranks first.
    below: tuple["Branch", ...] = ()


def stack_tree(reports: Iterable[RankHangReport]) -> tuple[Branch, ...]:
    """Return the tree of the ranks' Python stacks; ranks without one are left out."""
    stacks = [
        (report.rank, tuple(reversed(report.process.python_stack)))
        for report in reports
        if report.process.python_stack
    ]
    return tuple(_branches(sorted(stacks), 0))


_Stack = tuple[int, tuple[str, ...]]


def _branches(stacks: Sequence[_Stack], depth: int) -> Iterator[Branch]:
    by_frame: dict[str, list[_Stack]] = {}
    for rank, frames in stacks:
        if len(frames) > depth:
            by_frame.setdefault(frames[depth], []).append((rank, frames))
    for group in sorted(by_frame.values(), key=len, reverse=True):
        common = _common(group, depth)
        below = tuple(_branches(group, depth + len(common)))
        yield Branch(common, tuple(rank for rank, _ in group), below)


def _common(group: Sequence[_Stack], depth: int) -> tuple[str, ...]:
    """Return the frames from a depth on that all of them have, at least one."""
    first = min((frames for _, frames in group), key=len)
    end = depth + 1
    while end < len(first) and all(frames[end] == first[end] for _, frames in group):
        end += 1
    return first[depth:end]


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks for people: "rank 3", "8 ranks: 0-2,4-8"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    text = members_text(ranks)
    if not text or len(text) > _RANKS_MAX:
        text = f"{text[:_RANKS_MAX].rpartition(',')[0] or ranks[0]},…"
    return f"{len(ranks)} ranks: {text}"
