"""A day of a node whose inputs flap: no finding that the rules do not call for, and each one ends.

The schedule is random and seeded. A short fault is one that the rules say means nothing; a long one
is one that they call a finding. Faults of one kind come far apart, so that windows of hours and
flap counters see each of them alone.
"""

import random
from collections import defaultdict

import pytest

from everstep_common.judging.findings import Severity
from simulation.soak_node import KINDS, Fault, Kind, SoakNode

HOUR_S = 3600
# The longest that anything here stays open after its fault: an event is quiet for an hour, and the
# window of symbol errors is one.
_SETTLE_S = 2 * HOUR_S
# The first look of each detector is its past; a GPU was healthy, a port up.
_WARM_UP_S = 60


def schedule(seed: int, hours: int) -> list[Fault]:
    """Return faults of all kinds, at most one beginning in a second, spread over the time."""
    rng = random.Random(seed)
    faults: list[Fault] = []
    taken: set[int] = set()
    for kind in KINDS.values():
        at_s = _WARM_UP_S + rng.randrange(HOUR_S // 2)
        while at_s < hours * HOUR_S:
            while at_s in taken:
                at_s += 1
            taken.add(at_s)
            faults.append(_fault(rng, kind, at_s, sum(one.kind is kind for one in faults)))
            # A component is left alone for longer than any window that looks at it.
            at_s += _SETTLE_S + rng.randrange(HOUR_S)
    return sorted(faults, key=lambda fault: fault.begins_s)


def _fault(rng: random.Random, kind: Kind, at_s: int, number: int) -> Fault:
    long = rng.random() < 0.5
    # The looks of slow sources are ten seconds apart: a length says how many of them see it.
    length_s = kind.long_s + rng.randrange(30) * (kind.long_s > 20) if long else kind.short_s
    event = kind.short_s == kind.long_s
    # In turn: three losses of one link within a day are a finding of their own.
    return Fault(kind, number % kind.targets, at_s, at_s + length_s, long or event)


def soak(seed: int, hours: int) -> SoakNode:
    """Let a node live through a schedule, and its last findings end."""
    node = SoakNode(schedule(seed, hours), seed)
    node.run(hours * HOUR_S + _SETTLE_S)
    return node


def judge(node: SoakNode) -> None:
    """Compare what the node told with what the rules call for."""
    raised: dict[int, set[str]] = defaultdict(set)
    worst: dict[int, Severity] = {}
    for at_s, what, condition, component, severity in node.told:
        if what != "raised" or severity is None:
            continue
        fault = _cause(node, at_s, condition)
        assert fault is not None, f"nothing calls for {condition} on {component} at {at_s} s"
        raised[fault.begins_s].add(condition)
        if severity is Severity.FATAL or fault.begins_s not in worst:
            worst[fault.begins_s] = severity
    for fault in node.faults:
        wanted = fault.kind.raises if fault.long else fault.kind.short_raises
        assert raised[fault.begins_s] == wanted, (fault, raised[fault.begins_s])
        if wanted and fault.kind.severity is Severity.FATAL:
            assert (worst[fault.begins_s] is Severity.FATAL) == fault.long, fault
    assert [known.finding for known in node.book.open_findings] == []


def _cause(node: SoakNode, at_s: int, condition: str) -> Fault | None:
    """Return the newest fault that had begun and may raise the condition."""
    for fault in reversed(node.faults):
        allowed = fault.kind.raises if fault.long else fault.kind.short_raises
        if fault.begins_s <= at_s <= fault.ends_s + 15 and condition in allowed:
            return fault
    return None


@pytest.mark.parametrize("seed", range(2))
def test_hours_of_flapping_inputs_raise_what_the_rules_call_for_and_nothing_stays(
    seed: int,
) -> None:
    # Each kind of fault comes once in the first hour, and next after more than two.
    judge(soak(seed, hours=1))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [101, 102])
def test_a_day_of_flapping_inputs_raises_what_the_rules_call_for_and_nothing_stays(
    seed: int,
) -> None:
    judge(soak(seed, hours=24))
