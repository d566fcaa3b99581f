"""Violations of invariants, and which faults explain what was seen."""

from dataclasses import dataclass

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
    fault: Fault, excuse: Excuse, at_s: float, nodes: tuple[str, ...], job: str = ""
) -> bool:
    """Return whether a fault explains something on these nodes, or of this job, at that time."""
    if fault.failed or excuse not in fault.excuses:
        return False
    if not fault.begun_s - 1.0 <= at_s <= fault.ended_s + fault.aftermath_s:
        return False
    concerned = fault.broken if excuse is Excuse.REDO and fault.broken else fault.nodes
    touched = set(concerned) & set(nodes) or concerned == nodes
    return bool(touched) or (bool(job) and fault.job == job)


def explained(
    round_: Round, excuse: Excuse, at_s: float, nodes: tuple[str, ...], job: str = ""
) -> bool:
    """Return whether any fault of the round explains it."""
    return any(explains(fault, excuse, at_s, nodes, job) for fault in round_.faults)
