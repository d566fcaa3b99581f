"""Hang of a job: which nodes say that their ranks stand still, and what was judged of that."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict

# Of a job's hangs for which it was restarted, and of those that named a node, so many are kept.
HANGS_MAX = 16
NODE_HANGS_MAX = 8

# Confidence with which culprits are named.
SURE = frozenset({Confidence.CERTAIN, Confidence.LIKELY})


@dataclass(frozen=True, slots=True)
class StillNode:
    """Word of a node that none of its ranks has moved for longer than they ever do."""

    since_ns: int
    # For how long nothing may happen there, as it has learned.
    usual_ns: int
    # Newest step that all its ranks completed; None when they told of none.
    step: int | None = None
    # Why operations say nothing there, and steps alone decided; "" where they do.
    blind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenHang:
    """What looks at the ranks of a job found while it stood still: the newest of them."""

    verdict: HangVerdict
    # Hash of the reports that it was made of, by which they are found in the folder of evidence.
    evidence: str = ""
    # Culprits that cannot go on by themselves, as their processes were seen.
    stuck: tuple[int, ...] = ()
    # So many looks in a row said the same while no rank moved, the first of them so long before.
    looks: int = 1
    same_ns: int = 0
    # How long before it, as looks saw, the ranks stood where they stand, whatever was judged.
    unmoved_ns: int = 0
    # What a rank does that is no step, in words; "" where none does.
    pause: str = ""
    # Why it could not be judged, in words; "" where it was.
    failure: str = ""

    @property
    def is_sure(self) -> bool:
        """Whether more than one explanation is ruled out."""
        return self.verdict.confidence in SURE

    @property
    def node(self) -> str:
        """Return the one node that has all culprits; "" where there is no such node."""
        nodes = {one.node for one in self.verdict.culprits}
        return nodes.pop() if len(nodes) == 1 and self.is_sure else ""


@dataclass(slots=True)
class Hang:
    """Stall of a job that lasts: what was seen of it, and what is going to be done about it."""

    # When its last step ended.
    onset_ns: int = 0
    # Its nodes have told that their ranks stand still: their word ends it, too.
    by_word: bool = False
    seen: SeenHang | None = None
    seen_ns: int = 0
    # A look from then on, which finds the same, has it acted upon; 0: none has.
    due_ns: int = 0
    # What is going to be done, as people were told.
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHang:
    """A hang for which a job was restarted."""

    generation: int
    at_ns: int
    # The last step that it had completed.
    step: int | None
    kind: HangClass
    # Ranks that held it back, and their nodes; none where nobody could be named for sure.
    culprits: tuple[tuple[int, str], ...] = ()
    # A finding of their node explains it.
    explained: bool = False


@dataclass(frozen=True, slots=True)
class NodeHang:
    """A hang of a job whose culprits were all on one node."""

    at_ns: int
    job: str
    ranks: tuple[int, ...]


def hung_again(hangs: Iterable[PastHang]) -> frozenset[str]:
    """Return the nodes on which one rank has held its job back twice in a row, unexplained."""
    newest = [one for one in hangs if not one.explained][-2:]
    if len(newest) < 2:
        return frozenset()
    return frozenset(node for _, node in {*newest[0].culprits} & {*newest[1].culprits})
