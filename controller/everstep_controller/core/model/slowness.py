"""Slowness of a job: who of it makes the others wait, as was judged last."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPart:
    """Rank or place of a job that makes the others wait, with the numbers by which it was judged.

    They come from what ranks tell of themselves: that is a job's own word.
    """

    # "rank", or the kind of a place whose ranks are slow together: "node", "domain".
    kind: str
    # Its number, or the place's name.
    name: str
    # Where it is; "" for a place of several nodes.
    node: str
    # Its seconds, relative to what they would be as its peers' are.
    factor: float
    since_step: int
    # Of what the job loses to the slowest rank of each step: what it would gain without it.
    share: float
    # It explains so much that another node in its place is worth it.
    worth_swap: bool
    sentence: str
    # When it became slow, and since when its ranks were compared; 0: not known.
    began_ns: int = 0
    compared_ns: int = 0

    @property
    def key(self) -> tuple[str, str, bool]:
        """Return what makes it another one; numbers alone do not."""
        return self.kind, self.name, self.worth_swap


@dataclass(slots=True)
class JobSlowness:
    """Slow ranks of a generation, and what is done about them."""

    generation: int = 0
    parts: tuple[SlowPart, ...] = ()
    judged_ns: int = 0
    # What else makes steps long (core/accounting/slow_time.py).
    causes: tuple[str, ...] = ()
    # What is going to be done, or why nothing is, as people were told.
    plan: str = ""
