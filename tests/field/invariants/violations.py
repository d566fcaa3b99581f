"""Violations of invariants, and which faults explain what was seen."""

from collections.abc import Callable
from dataclasses import dataclass

from field.faults.catalogue import KINDS
from field.observation.records import Excuse, Fault, Round


@dataclass(frozen=True, slots=True)
class Violation:
    """What should not have been: when, of what, and the sentence that people read."""

    at_s: float
    subject: str
    sentence: str
    # When what was seen had begun, where it took time.
    began_s: float = 0.0


def explains(
    fault: Fault,
    excuse: Excuse,
    at_s: float,
    nodes: tuple[str, ...],
    job: str = "",
    since_s: float | None = None,
) -> bool:
    """Return whether a fault explains something on these nodes, or of this job, at that time.

    What began at ``since_s`` may have been brought about then already.
    """
    began_s = at_s if since_s is None else since_s
    in_time = fault.begun_s - 1.0 <= at_s and began_s <= fault.ended_s + fault.aftermath_s
    return in_time and concerns(fault, excuse, nodes, job)


def concerns(fault: Fault, excuse: Excuse, nodes: tuple[str, ...], job: str = "") -> bool:
    """Return whether a fault explains such things on these nodes, or of this job."""
    kind = KINDS.get(fault.kind)
    if fault.failed or excuse not in (kind.excuses if kind else fault.excuses):
        return False
    if fault.job and job and not (kind and kind.of_machine):
        # What was done to one job's ranks is nothing to another job on the same machines.
        return fault.job == job
    concerned = fault.broken if excuse is Excuse.REDO and fault.broken else fault.nodes
    return bool(set(concerned) & set(nodes)) or concerned == nodes


def explained(
    round_: Round,
    excuse: Excuse,
    at_s: float,
    nodes: tuple[str, ...],
    job: str = "",
    since_s: float | None = None,
) -> bool:
    """Return whether any fault of the round explains it."""
    return any(explains(fault, excuse, at_s, nodes, job, since_s) for fault in round_.faults)


def covered_s(
    round_: Round,
    began_s: float,
    ended_s: float,
    is_one: Callable[[Fault], bool],
    aftermath_s: float = 0.0,
) -> float:
    """Return how much of a time such faults lasted, each so much longer than it did."""
    spans = sorted(
        (max(one.begun_s, began_s), min(one.ended_s + aftermath_s, ended_s))
        for one in round_.faults
        if is_one(one)
    )
    total_s, reached_s = 0.0, began_s
    for from_s, to_s in spans:
        total_s += max(0.0, to_s - max(from_s, reached_s))
        reached_s = max(reached_s, to_s)
    return total_s
