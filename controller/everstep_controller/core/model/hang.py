"""Hang of a job: which nodes say that their ranks stand still, and what was judged of that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict

# Of a job's hangs for which it was restarted, and of those that named a node, so many are kept.
HANGS_MAX = 16
NODE_HANGS_MAX = 8
# Of the places at which a job has stood still and gone on by itself, so many are kept; and of
# those at which one stand was seen.
PLACES_MAX = 32
STAND_PLACES_MAX = 4

# Confidence with which culprits are named.
SURE = frozenset({Confidence.CERTAIN, Confidence.LIKELY})

_DAY_NS = 86_400 * 10**9
# As much longer as the longest before is still the same evaluation.
_MARGIN = 1.5
# A stand that took longer and ended well was a debugger's, or waited for somebody.
_STOOD_MAX_NS = 3600 * 10**9
# What is usual for less is not kept: any stand is as long before it is seen.
_LEAST_NS = 10**9


class Proof(Enum):
    """What a hang proves when it comes again."""

    # On another node with the same rank: the program, and the job ends.
    PROGRAM = auto()
    # On the same node with other ranks or jobs: the node, and it is replaced and checked.
    NODE = auto()
    # Without a new step since: one of the attempts after which a job is given up.
    ATTEMPT = auto()


_ALL = frozenset(Proof)
_NOTHING: frozenset[Proof] = frozenset()

# A stopped process is somebody's hand or a debugger's; storage answers nobody or everybody; ranks
# that nobody could ask are on a machine that stands still or behind a cut network, and operations
# that no rank completes may be in that network. How a dead rank died is judged by its exit.
PROVED: Mapping[HangClass, frozenset[Proof]] = MappingProxyType(
    {
        HangClass.FROZEN: _NOTHING,
        HangClass.STORAGE: _NOTHING,
        HangClass.SILENT: _NOTHING,
        HangClass.FABRIC: _NOTHING,
        HangClass.DEAD: frozenset({Proof.ATTEMPT}),
        HangClass.UNKNOWN: frozenset({Proof.ATTEMPT}),
        HangClass.NO_WAIT: frozenset({Proof.ATTEMPT}),
        HangClass.GIL_HELD: _ALL,
        HangClass.CPU_SIDE: _ALL,
        HangClass.GPU_SIDE: _ALL,
        HangClass.DESYNC: frozenset({Proof.PROGRAM, Proof.ATTEMPT}),
        HangClass.KNOWN_SOFTWARE: frozenset({Proof.PROGRAM, Proof.ATTEMPT}),
    }
)


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
    # When its agent looked.
    looked_ns: int = 0
    # It has seen little, and no step: whether ranks spread their weights yet, others have to tell.
    young: bool = False

    @property
    def unseeing(self) -> bool:
        """Whether the node can see no move of its ranks, so that others have to tell of the job."""
        return self.young and bool(self.blind) and self.step is None


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
    # PCI addresses of the accelerators that the culprits have open; None: that is not known.
    devices: tuple[str, ...] | None = None
    # Where those stand who hold the job back, as a number; "" where nobody tells it.
    place: str = ""
    # For how long the culprits have held the GIL at least, 0: that was not seen; and whether one of
    # them builds or writes something with it.
    held_ns: int = 0
    works: bool = False
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


@dataclass(frozen=True, slots=True)
class UsualStand:
    """A place at which a job has stood still and gone on by itself: how long, and when last."""

    place: str
    stood_ns: int
    at_ns: int


@dataclass(slots=True)
class Hang:
    """Stall of a job that lasts: what was seen of it, and what is going to be done about it."""

    # When all its nodes stood still, where it was not stalled by that at once; until when that is
    # taken for usual; and where looks have found it.
    found_ns: int = 0
    usual_until_ns: int = 0
    places: list[str] = field(default_factory=list)

    # When its last step ended.
    onset_ns: int = 0
    # Its nodes have told that their ranks stand still: their word ends it, too.
    by_word: bool = False
    seen: SeenHang | None = None
    seen_ns: int = 0
    # What the look found in words, of which nobody was told yet.
    sentence: str = ""
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

    def proves(self, what: Proof) -> bool:
        """Return whether it counts for that when the like comes again."""
        return not self.explained and what in PROVED[self.kind]


@dataclass(frozen=True, slots=True)
class NodeHang:
    """A hang of a job whose culprits were all on one node."""

    at_ns: int
    job: str
    ranks: tuple[int, ...]


def hung_again(hangs: Iterable[PastHang]) -> frozenset[str]:
    """Return the nodes on which one rank has held its job back twice in a row, by what it did."""
    newest = [one for one in hangs if one.proves(Proof.NODE)][-2:]
    if len(newest) < 2:
        return frozenset()
    return frozenset(node for _, node in {*newest[0].culprits} & {*newest[1].culprits})


def usual_stand_ns(known: Iterable[UsualStand], place: str, now_ns: int) -> int:
    """Return for how long the job may stand still at a place; 0: it is not known there."""
    stood_ns = max((_lasting_ns(one, now_ns) for one in known if one.place == place), default=0)
    return int(_MARGIN * stood_ns)


def stands_with(
    known: Iterable[UsualStand], places: Iterable[str], stood_ns: int, now_ns: int
) -> list[UsualStand]:
    """Return what is known when a job has gone on that stood still at some places; oldest first."""
    before = {one.place: one for one in known if _lasting_ns(one, now_ns) >= _LEAST_NS}
    for place in places:
        lasted_ns = min(stood_ns, _STOOD_MAX_NS)
        if (one := before.pop(place, None)) is not None:
            lasted_ns = max(lasted_ns, _lasting_ns(one, now_ns))
        before[place] = UsualStand(place, lasted_ns, now_ns)
    return list(before.values())[-PLACES_MAX:]


def _lasting_ns(one: UsualStand, now_ns: int) -> int:
    return one.stood_ns >> max(0, now_ns - one.at_ns) // _DAY_NS
