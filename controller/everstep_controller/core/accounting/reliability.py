"""Reliability of a fleet in numbers: failure rates with their bounds, MTTF, MTTR, and budgets.

Times are seconds and rates are per second here, but for those that are published per 1,000
node-days. Sources are named with each formula.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

DAY_S = 86_400.0
# A rate's bounds hold with this probability.
CONFIDENCE = 0.95
# Bisection halves an interval that is as wide as the bound itself until a double cannot tell more.
_HALVINGS = 80


@dataclass(frozen=True, slots=True)
class Rate:
    """Failures per 1,000 node-days, and the exact Poisson interval of it."""

    failures: int
    node_days: float
    per_1000_node_days: float
    low: float
    high: float


def failure_rate(failures: int, node_days: float, confidence: float = CONFIDENCE) -> Rate:
    """Return a failure rate with its exact interval (Garwood 1936).

    Zeros where no node-day has passed. Raises ValueError for a negative count or time.
    """
    if failures < 0 or node_days < 0:
        raise ValueError(f"expected no negative number, got {failures} in {node_days} node-days")
    if not node_days:
        return Rate(failures, 0.0, 0.0, 0.0, 0.0)
    low, high = poisson_interval(failures, confidence)
    scale = 1000 / node_days
    return Rate(failures, node_days, failures * scale, low * scale, high * scale)


def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the exact interval of a Poisson mean of which ``count`` events were seen.

    Below the lower bound so many events, or more, are less probable than half of what is left of
    the confidence; above the upper bound so many, or fewer, are.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if not count else _mean_at(count - 1, 1 - tail)
    return low, _mean_at(count, tail)


def _mean_at(count: int, probability: float) -> float:
    """Return the mean with which at most ``count`` events have this probability."""
    low, high = 0.0, count + 10 * math.sqrt(count + 1) + 20
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _at_most(count, middle) > probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _at_most(count: int, mean: float) -> float:
    """Return the probability of at most ``count`` events.

    Terms are summed from the largest on, downwards where the mean is above the count and otherwise
    those that are left out, so that some square root of the count of them is enough.
    """
    if not mean:
        return 1.0
    if mean > count:
        ratios = (i / mean for i in range(count, 0, -1))
        return _term(count, mean) * _series(ratios)
    beyond = (mean / i for i in itertools.count(count + 2))
    return 1.0 - _term(count + 1, mean) * _series(beyond)


def _term(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _series(ratios: Iterable[float]) -> float:
    """Return 1 + r1 + r1 r2 + …, until a term changes nothing any more."""
    total = term = 1.0
    for ratio in ratios:
        term *= ratio
        if total + term == total:
            break
        total += term
    return total


def mttf_s(nodes: int, per_1000_node_days: float) -> float:
    """Return the mean time to failure of a job on so many nodes; inf where there are no failures.

    MTTF = 1 / (N r_f), as in Revisiting Reliability (arXiv 2410.21680).
    """
    rate = nodes * per_1000_node_days / 1000 / DAY_S
    return 1 / rate if rate > 0 else math.inf


@dataclass(frozen=True, slots=True)
class StageTimes:
    """How long one stage of recoveries took: seconds at the median and the 99th percentile."""

    count: int
    p50_s: float
    p99_s: float


def stage_times(recoveries: Sequence[Mapping[str, float]]) -> dict[str, StageTimes]:
    """Return the times of each stage, and of the whole under "all", from seconds by stage."""
    if not recoveries:
        return {}
    stages = sorted({stage for one in recoveries for stage in one})
    by_stage = {stage: [one[stage] for one in recoveries if stage in one] for stage in stages}
    by_stage["all"] = [math.fsum(one.values()) for one in recoveries]
    return {
        stage: StageTimes(len(told), median(told), percentile(told, 0.99))
        for stage, told in by_stage.items()
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share lies, between two that were measured if need be.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("expected at least one value")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def expected_ettr(mttf: float, restart_s: float, interval_s: float, stall_s: float) -> float:
    """Return the ETTR that measured rates predict: Daly's exact form (2006).

    tau / (M e^(R/M) (e^((tau + delta)/M) - 1)): work ``interval_s`` between snapshots that stall
    training for ``stall_s``, failures every ``mttf`` seconds by an exponential law, and
    ``restart_s`` from each failure until training goes on, in which it may fail again. Raises
    ValueError where the interval or the MTTF is not above 0.
    """
    if interval_s <= 0 or mttf <= 0:
        raise ValueError("expected an interval and an MTTF above 0")
    if math.isinf(mttf):
        return interval_s / (interval_s + stall_s)
    exponent = (interval_s + stall_s) / mttf
    if exponent + restart_s / mttf > math.log(float(2**1000)):
        return 0.0
    return interval_s / (mttf * math.exp(restart_s / mttf) * math.expm1(exponent))


@dataclass(frozen=True, slots=True)
class FailureBudget:
    """What failures may cost at a target ratio, and how much of that is used up.

    ``per_failure_s`` is what each may cost at the rate so far, 0 before the first; ``burnt`` is the
    share of the whole budget that failures have taken, above 1 where the target is missed.
    """

    target: float
    allowed_s: float
    spent_s: float
    per_failure_s: float

    @property
    def burnt(self) -> float:
        """Return the share of the budget that is used up; 0 where there is none to use."""
        return self.spent_s / self.allowed_s if self.allowed_s else 0.0


def failure_budget(
    target: float, wall_s: float, overhead_s: float, spent_s: float, failures: int
) -> FailureBudget:
    """Return the budget of failures within a wall clock, once steady overhead is taken off it.

    Snapshots and slowness cost time without any failure, so less is left for those. Raises
    ValueError for a target that is no share.
    """
    if not 0 < target < 1:
        raise ValueError(f"target: expected a share between 0 and 1, got {target}")
    allowed = max(0.0, wall_s * (1 - target) - overhead_s)
    each = allowed / failures if failures else 0.0
    return FailureBudget(target, allowed, spent_s, each)
