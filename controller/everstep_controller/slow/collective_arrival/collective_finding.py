"""Collective finding: what one look at the newest collectives of a job's ranks tells."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Items

NAMED_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRank:
    """A rank that comes last to the collectives of a group again and again."""

    rank: q.Rank
    node: q.Line
    group: q.Title
    # To so many of so many collectives; how long most others wait then, and from one to the next.
    times: q.Count
    of: q.Count
    wait_ms: float
    every_ms: float
    # Its own work relative to its peers'; 0: they are too few to be compared.
    factor: float
    sentence: str
    # Why it is not worth a look nevertheless; "" where it is.
    why_not: str = ""

    @property
    def nominated(self) -> bool:
        """Return whether it is worth a look."""
        return not self.why_not

    @property
    def whole_sentence(self) -> str:
        """Return all that in a sentence."""
        return f"{self.sentence}; {self.why_not}" if self.why_not else self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFinding:
    """What one look at the newest collectives of a job's ranks tells."""

    sentence: str
    late: Annotated[tuple[LateRank, ...], Items(NAMED_MAX)] = ()
    # Places whose ranks are late together, and waiting that nobody is to blame for, in words.
    common: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()
    # How many collectives were compared, of how many ranks.
    collectives: int = 0
    ranks: int = 0
    # The role of each rank, by the names; and how roles are known.
    role_names: tuple[str, ...] = ("",)
    roles: tuple[int, ...] = ()
    roles_sentence: str = ""

    @property
    def tells(self) -> bool:
        """Return whether anything of the ranks was seen."""
        return self.collectives > 0 or bool(self.roles_sentence)


@dataclass(frozen=True, slots=True)
class SeenLook:
    """What a look told, and when it was taken, on the controller's timeline."""

    finding: CollectiveFinding
    at_ns: int
