"""Schedule of a round: which fault comes when, for how long, and where; all drawn from the seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from field.faults.catalogue import CATALOGUE, FaultKind

MEAN_GAP_S = 20.0
# The first jobs have begun by then.
FIRST_S = 30.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault that is to come."""

    at_s: float
    kind: FaultKind
    lasts_s: float
    # What its target is drawn from, when it comes.
    seed: int


def plan(seed: int, lasts_s: float, machines: int, names: Sequence[str] = ()) -> list[Planned]:
    """Return the faults of a round, in order; with names, of these kinds only."""
    chance = random.Random(seed)
    kinds = [
        kind
        for kind in CATALOGUE
        if kind.machines <= machines and (not names or kind.name in names)
    ]
    planned, at_s = [], FIRST_S
    while at_s < lasts_s:
        (kind,) = chance.choices(kinds, [one.weight for one in kinds])
        lasts = round(chance.uniform(*kind.seconds), 1)
        planned.append(Planned(round(at_s, 1), kind, lasts, chance.getrandbits(32)))
        at_s += chance.uniform(0.6, 1.4) * MEAN_GAP_S
    return planned
