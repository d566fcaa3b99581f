"""Noted calls: sends and receives that a rank has noted itself, for no recorder has them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge

from everstep_common.hangs.dumps.program_divergence import Called


@dataclass(frozen=True, slots=True)
class NotedCall:
    """One of them."""

    # By the wall clock of its node, as torch's recorder dates operations.
    at_ns: int
    # "send to rank 3".
    label: str


@dataclass(frozen=True, slots=True)
class NotedCalls:
    """The newest ones of a rank, oldest first."""

    calls: tuple[NotedCall, ...] = ()
    # Whether there were older ones, for which there was no room.
    cut: bool = False

    def among(self, recorded: Sequence[tuple[int, Called]]) -> list[Called]:
        """Return them among recorded operations, which have times and keep their order.

        Only since when both are known.
        """
        since_ns = recorded[0][0] if recorded else 0
        noted = [one for one in self.calls if one.at_ns >= since_ns]
        if self.cut and noted:
            since_ns = noted[0].at_ns
        known = (pair for pair in recorded if pair[0] >= since_ns)
        beside = ((one.at_ns, Called(one.label)) for one in noted)
        return [one for _, one in merge(known, beside, key=lambda pair: pair[0])]
