"""Table of the invariants: functions over a recorded round; what each finds is a violation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from field.invariants import jobs, logs, nodes, waits
from field.invariants.violations import Violation
from field.observation.records import Round

# Above this lateness of the canary, what is timed says nothing of Everstep.
LATE_S = 0.5
VOID_MINUTES_MAX_RATIO = 0.2
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must hold of a round; whether it is about how long something took."""

    name: str
    check: Callable[[Round], Sequence[Violation]]
    timed: bool = False
    # What is promised of a controller that only advises is another thing.
    depends_on_mode: bool = False


INVARIANTS = (
    Invariant("jobs end as their scripts would", jobs.jobs_end_well),
    Invariant("losses are equal where that is promised", jobs.losses_are_equal),
    Invariant("every restore is right", jobs.restores_are_right),
    Invariant("redone steps are explained by a fault", jobs.redone_steps_are_explained),
    Invariant("a failure costs no more steps than was told", jobs.redone_steps_are_few),
    Invariant("the ledger sums to the wall clock", jobs.ledgers_sum_to_the_wall_clock),
    Invariant("no healthy node is lost", nodes.no_healthy_node_is_lost),
    Invariant(
        *("no healthy node is isolated", nodes.no_healthy_node_is_isolated), depends_on_mode=True
    ),
    Invariant("no hang is unexplained beyond its patience", waits.hangs_are_explained, timed=True),
    Invariant("what holds up a job is told in time", waits.faults_are_told, timed=True),
    Invariant("every wait is within its deadline", waits.waits_are_bounded, timed=True),
    Invariant("commands are answered", waits.commands_are_answered),
    Invariant("the journal replays", jobs.journal_replays),
    Invariant("nothing is left behind", jobs.nothing_is_left),
    Invariant("no warning without a finding or a reason", logs.warnings_have_a_reason),
    Invariant("no part of Everstep is told as broken", logs.nothing_of_ours_failed),
    Invariant("no crash and no refused call in any log", logs.nothing_crashed),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What one invariant came to."""

    invariant: Invariant
    violations: tuple[Violation, ...]
    # Violations of a timed one in minutes in which this machine was late.
    void: tuple[Violation, ...]


def judge(round_: Round) -> list[Judged]:
    """Return what every invariant finds in a round."""
    late = void_minutes(round_)
    judged = []
    for invariant in INVARIANTS:
        found = invariant.check(round_)
        void = [one for one in found if invariant.timed and _touches(one, late)]
        kept = [one for one in found if one not in void]
        judged.append(Judged(invariant, tuple(kept), tuple(void)))
    return judged


def void_minutes(round_: Round) -> frozenset[int]:
    """Return the minutes in which the canary was late."""
    return frozenset(int(one.at_s // _MINUTE_S) for one in round_.late if one.late_s > LATE_S)


def too_late(round_: Round) -> bool:
    """Return whether so many minutes are void that timed invariants have not been tried."""
    minutes = max(1, round(round_.lasted_s / _MINUTE_S))
    return len(void_minutes(round_)) > VOID_MINUTES_MAX_RATIO * minutes


def _touches(violation: Violation, late: frozenset[int]) -> bool:
    first, last = violation.began_s // _MINUTE_S, violation.at_s // _MINUTE_S
    return any(minute in late for minute in range(int(first), int(last) + 1))
