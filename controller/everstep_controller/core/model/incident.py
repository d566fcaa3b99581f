"""Incidents as values: faults with one cause, deaths of ranks, and judgements about them."""

from bisect import insort
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from everstep_common.failures import rank_exits
from everstep_common.reports import DataRange, RankExited

# When one rank dies, thousands may follow; more than these would explain nothing more.
DEATHS_MAX = 64

JUDGEMENTS_MAX = 16

STRIKES_MAX = 8


class Remedy(Enum):
    """Remedy for a fault: what is done about it."""

    RESTART = "restart"
    REPLACE = "replace"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Death:
    """One rank that ended before its generation did: its exit, and where and when that was.

    The step of the exit is the last one that the rank completed, or that the job had completed
    when it told of none.
    """

    node: str
    at_ns: int
    exit: RankExited

    @property
    def explains(self) -> bool:
        """Whether it can be why others died."""
        return rank_exits.explains(self.exit)

    @property
    def waited_in_vain(self) -> bool:
        """Whether the rank gave up waiting for others, which is evidence of a hang."""
        return rank_exits.waited_in_vain(self.exit)

    @property
    def got_unfit_data(self) -> bool:
        """Whether it got other data than it had called for: ranks call different operations."""
        return rank_exits.got_unfit_data(self.exit)

    @property
    def signature(self) -> str:
        """What is equal in two deaths of the same cause."""
        return rank_exits.signature_of(self.exit)

    @property
    def ended_before_any_step(self) -> bool:
        """Whether the script ended itself before its first step."""
        return rank_exits.ended_before_any_step(self.exit)

    def sentence(self) -> str:
        """Return what happened, in words."""
        return rank_exits.sentence_of(self.exit, self.node)


@dataclass(frozen=True, slots=True)
class AskedRollback:
    """A generation's wish to go back: the first state that ranks call bad, and why."""

    node: str
    step: int
    # As people are told of it.
    sentence: str
    # Data that is left out from then on.
    skip: DataRange | None = None

    @property
    def signature(self) -> str:
        """What is equal in two of them that went over the same data."""
        return f"rollback: {self.skip or 'the same data'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Judgement of how one generation ended: cause, blame, and what was done then."""

    generation: int
    at_ns: int
    remedy: Remedy
    sentence: str
    evidence: tuple[str, ...] = ()
    # The node that is blamed; empty when none is.
    node: str = ""
    signature: str = ""
    step: int | None = None
    # The plan that followed: "in place from step 5".
    tried: str = ""
    # The nodes on which it happened.
    nodes: tuple[str, ...] = ()
    # A finding of a node explained it then, whatever has become of the finding since.
    explained: bool = False
    # The program may have done it: without a new step, the restart after it is an attempt that
    # counts.
    attempt: bool = True
    # What ended it is outside of the program and of every node: attempts are ever further apart.
    outside: bool = False


@dataclass(frozen=True, slots=True)
class WaitedFor:
    """Ranks for which others of a generation waited until they gave up, and their nodes.

    Or the ranks that called what did not fit, without nodes.
    """

    generation: int
    sentence: str
    nodes: tuple[str, ...] = ()
    # It is known which rank called what did not fit.
    is_departure: bool = False


@dataclass(frozen=True, slots=True)
class Strike:
    """A death on a node that could have been the node's fault."""

    at_ns: int
    job: str
    sentence: str


def add_death(deaths: list[Death], death: Death) -> None:
    """Take one more death; of each generation, those are kept that explain most, earliest first."""
    if deaths and deaths[0].exit.generation != death.exit.generation:
        deaths.clear()
    insort(deaths, death, key=_order_of)
    del deaths[DEATHS_MAX:]


def _order_of(death: Death) -> tuple[bool, bool, int, int]:
    return _order(death.exit, death.at_ns, death.exit.rank)


def is_full(deaths: list[Death], exit: RankExited, at_ns: int, rank: int) -> bool:
    """Return whether as many deaths of its generation are kept, and all explain more than this."""
    if len(deaths) < DEATHS_MAX or deaths[0].exit.generation != exit.generation:
        return False
    return _order(exit, at_ns, rank) >= _order_of(deaths[-1])


def _order(exit: RankExited, at_ns: int, rank: int) -> tuple[bool, bool, int, int]:
    """Return what stands first: what others died of, then a wait that was given up, then the rest.

    Who gives up closes its connections, and those that lose them often end before it.
    """
    return (not rank_exits.explains(exit), not rank_exits.waited_in_vain(exit), at_ns, rank)


class IncidentKind(StrEnum):
    """Kind of the thing that an incident hit."""

    JOB = "job"


@dataclass(frozen=True, slots=True)
class IncidentPart:
    """One fault of an incident: a finding, a death, a silence, or somebody's word."""

    at_ns: int
    cause: str
    # The node that it is blamed on; empty when that is not known.
    node: str
    message: str


@dataclass(slots=True, kw_only=True)
class Incident:
    """Incident: faults that have one cause; each kind adds what is done about it."""

    id: str
    kind: IncidentKind
    # Names of the nodes, or ids of the jobs, that it hit.
    subjects: list[str]
    # When the first of its faults happened, and when it was over; 0 while it is open.
    onset_ns: int
    over_ns: int = 0
    # The cause by its kind's names, the node where it was, and a sentence for people.
    cause: str
    node: str
    message: str
    # The first faults that were taken for it, in the order in which they were learned.
    parts: list[IncidentPart] = field(default_factory=list)
