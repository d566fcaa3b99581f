"""Rank calls: sends and receives of this rank that no recorder of torch's keeps, in its page.

gloo's are in none. The newest ones are written into a ring of the page, with the other end and the
time, so that whoever looks at a rank that hangs sees what it did otherwise than before. Run in the
rank by its own interpreter, from 3.8 on, with the standard library only.
"""

import functools
import time

if __package__:
    from everstep.rank.interpreter import everstep_rank_page as page_of
else:  # in a rank, whose interpreter need not have everstep
    import everstep_rank_page as page_of  # type: ignore[import-not-found, no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from torch import Tensor

# Methods of torch's ProcessGroup by which all its functions send and receive, and the numbers by
# which the page has them.
_METHODS = (("send", page_of.SEND), ("recv", page_of.RECV), ("recv_anysource", page_of.RECV_ANY))


class RankCalls:
    """The ring of one rank's page."""

    def __init__(
        self,
        page: page_of.Page,
        members: "Callable[[object], list[int]]",
        now_ns: "Callable[[], int]" = time.time_ns,
    ) -> None:
        """``members`` returns the ranks of a group; ``now_ns`` is the clock of torch's recorder."""
        self._page = page
        self._members_of = members
        self._now_ns = now_ns
        # By its place in memory.
        self._members: dict[int, list[int]] = {}

    def note(self, kind: int, group: object, end: int) -> None:
        """Note a send or receive with a rank of a group; of a receive from any, ``end`` is 0."""
        if not self._page.usable:  # a forked child, whose page would be its parent's
            return
        members = self._members.get(id(group))
        if members is None or end >= len(members):
            members = self._members[id(group)] = self._members_of(group)
        words = self._page.words
        count = words[page_of.CALLS]
        at = page_of.CALLS + 1 + 2 * (count % page_of.CALLS_MAX)
        words[at], words[at + 1] = self._now_ns(), kind << 32 | members[end]
        words[page_of.CALLS] = count + 1


class _Noted:
    """Whose calls are noted; a forked child that makes groups has a page of its own, or none."""

    calls: "RankCalls | None" = None


def note_calls(c10d: "ModuleType", page: page_of.Page) -> None:
    """Have this process note what it sends and receives from its processors' memory."""
    import sys

    first = _Noted.calls is None
    members = sys.modules["torch.distributed.distributed_c10d"].get_process_group_ranks
    _Noted.calls = RankCalls(page, members)
    for name, kind in _METHODS if first else ():
        wrap(c10d.ProcessGroup, name, kind, lambda: _Noted.calls)


def wrap(group_type: type, name: str, kind: int, calls: "Callable[[], RankCalls | None]") -> None:
    """Have a method of process groups noted in ``calls``, and called as before."""
    call: Callable[..., object] = getattr(group_type, name)

    @functools.wraps(call)
    def noted(group: object, tensors: "Sequence[Tensor]", *arguments: int, **named: int) -> object:
        try:
            noting = calls()
            if noting is not None and tensors[0].is_cpu:  # of a GPU's, NCCL's recorder tells
                noting.note(kind, group, 0 if kind == page_of.RECV_ANY else arguments[0])
        except Exception:  # noqa: BLE001 - what cannot be noted is called all the same
            pass
        return call(group, tensors, *arguments, **named)

    setattr(group_type, name, noted)
