"""Comparison with peers: where most nodes lie, how far they spread, and who stands out."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from everstep_common.judging.findings import Measurement
from everstep_controller.judging.view import Mask, Values

# With fewer nodes nobody can say which of them is the odd one.
NODES_MIN = 4
# Of normally distributed values the standard deviation is so many median absolute deviations.
# 3.5 of them are the usual limit for a table of numbers (Iglewicz and Hoaglin, 1993); a fleet of
# 12,500 nodes that is judged every few seconds takes 6.
_SIGMA_PER_DEVIATION = 1.4826
_SIGMAS = 6.0
# Above this share it is not the nodes that stand out: a switch, a server or the controller.
_CROWD_RATIO = 0.2


class Direction(Enum):
    """Direction from the median in which a value may stand out."""

    BOTH = "both"
    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of all nodes' values, robust against a few that do not belong."""

    median: float
    # Robust standard deviation: 1.4826 median absolute deviations.
    sigma: float
    # Number of nodes whose value is known.
    count: int

    def measurements(self, unit: str) -> tuple[Measurement, ...]:
        """Return the numbers that every comparison is decided by; ``unit`` is the values'."""
        return (
            Measurement(f"median_{unit}", self.median),
            Measurement(f"sigma_{unit}", self.sigma),
            Measurement("nodes", self.count),
        )


@dataclass(frozen=True, slots=True)
class PeerComparison:
    """Nodes that stand out, and nodes that do not; those between the two limits are neither."""

    spread: Spread
    outside: Mask
    inside: Mask


def spread_of(values: Values) -> Spread | None:
    """Return the spread of the known values; None when they are too few to compare."""
    known = values[np.isfinite(values)]
    if len(known) < NODES_MIN:
        return None
    median = float(np.median(known))
    deviation = float(np.median(np.abs(known - median)))
    return Spread(median, _SIGMA_PER_DEVIATION * deviation, len(known))


def compare(
    values: Values, uncertainty: Values | float, floor: float, direction: Direction = Direction.BOTH
) -> PeerComparison | None:
    """Return who stands out; None when there are too few to tell, or so many that it is not they.

    A value stands out that is certainly ``floor`` and 6 robust standard deviations from the median
    of all, ``uncertainty`` (0 where values are exact) taken off; it does not when it is certainly
    within half of that.
    """
    spread = spread_of(values)
    if spread is None:
        return None
    distance = _distance(values - spread.median, direction)
    limit = max(floor, _SIGMAS * spread.sigma)
    outside = distance - uncertainty >= limit
    if int(outside.sum()) > max(1, int(spread.count * _CROWD_RATIO)):
        return None
    return PeerComparison(spread, outside, distance + uncertainty <= limit / 2)


def _distance(above: Values, direction: Direction) -> Values:
    """Return how far each value is from the median, in the direction that counts."""
    match direction:
        case Direction.ABOVE:
            return above
        case Direction.BELOW:
            return -above
        case Direction.BOTH:
            return np.abs(above)
