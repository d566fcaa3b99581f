"""Schedule of a run: which fault comes when, and for how long; all drawn from a seed. Pure.

Faults overlap as they do in a bad hour: a database may go while the active controller is cut off.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """Kind of fault."""

    # Controllers.
    KILL = "a controller is killed"
    TERMINATE = "a controller is asked to end"
    STOP = "a controller stands still"
    CUT = "a controller is cut off"
    HAND_OVER = "the active controller is told to hand over"
    CONTROLLER_CLOCK = "the wall clock of a controller is stepped"
    # The database.
    DATABASE_KILL = "the database is killed, and started again"
    DATABASE_RESTART = "the database is restarted in good order"
    DATABASE_STOP = "the database stands still"
    DATABASE_CLOCK = "the wall clock of the database is stepped"
    CONNECTIONS = "all connections to the database are broken off"
    # Agents, as racks of nodes.
    AGENTS_KILL = "the agents of a rack are killed"
    AGENTS_STOP = "the agents of a rack stand still"
    AGENTS_CUT = "a rack is cut off"
    AGENTS_CLOCK = "the wall clock of a rack is stepped"
    # What operators and hardware do meanwhile.
    FATAL_FINDING = "a node has a fatal finding"


@dataclass(frozen=True, slots=True)
class Rule:
    """How often a kind comes, beside others, and how long it lasts."""

    kind: FaultKind
    weight: float
    # Seconds, from and to; a step of a clock lasts: it is so long instead.
    lasts_s: tuple[float, float] = (0.0, 0.0)


_K = FaultKind
RULES: Sequence[Rule] = (
    Rule(_K.KILL, 6.0),
    Rule(_K.TERMINATE, 1.0),
    # Shorter and longer than it takes until a standby takes over.
    Rule(_K.STOP, 4.0, (0.2, 14.0)),
    Rule(_K.CUT, 4.0, (0.5, 16.0)),
    Rule(_K.HAND_OVER, 1.5),
    Rule(_K.CONTROLLER_CLOCK, 2.0, (-3600.0, 3600.0)),
    Rule(_K.DATABASE_KILL, 1.5, (0.0, 4.0)),
    Rule(_K.DATABASE_RESTART, 1.0, (0.0, 1.0)),
    Rule(_K.DATABASE_STOP, 1.0, (0.5, 8.0)),
    Rule(_K.DATABASE_CLOCK, 1.0, (-3600.0, 3600.0)),
    Rule(_K.CONNECTIONS, 1.5),
    Rule(_K.AGENTS_KILL, 2.0),
    Rule(_K.AGENTS_STOP, 1.5, (0.5, 10.0)),
    Rule(_K.AGENTS_CUT, 1.5, (0.5, 10.0)),
    Rule(_K.AGENTS_CLOCK, 1.0, (-3600.0, 3600.0)),
    Rule(_K.FATAL_FINDING, 2.0, (1.0, 8.0)),
)

MEAN_GAP_S = 4.0
_FIRST_S = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault that is to come."""

    at_s: float
    kind: FaultKind
    lasts_s: float
    # What its target is drawn from, when it comes: who is active is not known before.
    target: float


def plan(seed: int, minutes: float) -> Iterator[Planned]:
    """Yield the faults of a run, in order."""
    chance = random.Random(seed)
    at_s = _FIRST_S
    while at_s < minutes * 60:
        (rule,) = chance.choices(RULES, [one.weight for one in RULES])
        lasts_s = round(chance.uniform(*rule.lasts_s), 2)
        yield Planned(round(at_s, 2), rule.kind, lasts_s, chance.random())
        at_s += chance.expovariate(1 / MEAN_GAP_S)
