"""ETTR, the effective-training-time ratio: its definitions, and what a failure may still cost.

Pure arithmetic over a job's ledger. The sentences of ``DEFINITIONS`` go out with the numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep_controller.core.accounting.categories import PLANNED_WORK, Category, Group
from everstep_controller.core.accounting.ledger import Ledger

# Share of its time that a job may lose to failures, at a target of 99.5 %.
FAILURE_SHARE = 0.005

DEFINITIONS = (
    "ETTR_time = (productive + slow.*) / wall: the share of time in which steps were made that "
    "count.",
    "ETTR_work = productive / wall: what a step took beyond its reference time is a loss as well.",
    "A failure is an incident that nobody planned: restarts and drains that an operator or its "
    "user ordered, and growth, are none. To hold 99.5 %, each may cost wall x 0.5 % / failures.",
)


@dataclass(frozen=True, slots=True)
class Effectiveness:
    """ETTR of a job: the share of its wall clock that was training, and its failures."""

    wall_ns: int
    ettr_time: float
    ettr_work: float
    failures: int
    # Seconds that each failure may cost to hold 99.5 %; 0 before the first one.
    budget_per_failure_s: float


def effectiveness(ledger: Ledger, failures: int, now_ns: int) -> Effectiveness:
    """Return the ratios of a job with so many failures, up to ``now_ns``."""
    wall_ns, totals = ledger.wall_ns(now_ns), ledger.totals(now_ns)
    return Effectiveness(
        wall_ns,
        ettr_time(totals, wall_ns),
        ettr_work(totals, wall_ns),
        failures,
        budget_per_failure_s(wall_ns, failures),
    )


def ettr_time(totals: Mapping[Category, int], wall_ns: int) -> float:
    """Return (productive + slow.*) / wall: time in steps that count, however long they took.

    Comparable with what Llama 3, ByteRobust and Google publish. 0 before any time has passed.
    """
    return _share(totals, wall_ns, (Group.PRODUCTIVE, Group.SLOW))


def ettr_work(totals: Mapping[Category, int], wall_ns: int) -> float:
    """Return productive / wall: what a step took beyond its reference time is a loss as well.

    The reference is the median step of the newest hundred of its generation. 0 before any time has
    passed.
    """
    return _share(totals, wall_ns, (Group.PRODUCTIVE,))


def failure_count(causes: Iterable[str]) -> int:
    """Return how many incidents with these causes are failures: those that nobody planned."""
    return sum(cause not in PLANNED_WORK for cause in causes)


def budget_per_failure_s(wall_ns: int, failures: int) -> float:
    """Return the seconds that each failure may cost at the failure rate so far to hold 99.5 %.

    wall x 0.5 % / failures; 0 before the first failure, when there is no rate to tell from.
    """
    return wall_ns / 1e9 * FAILURE_SHARE / failures if failures else 0.0


def _share(totals: Mapping[Category, int], wall_ns: int, groups: tuple[Group, ...]) -> float:
    counted = sum(amount for category, amount in totals.items() if category.group in groups)
    return counted / wall_ns if wall_ns else 0.0
