"""Invariants of waits: no state of a job outlasts its deadline, and no hang stays unexplained."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType

from field.invariants.violations import Violation, explained
from field.observation.records import Excuse, JobSeen, Round

# Shipped deadlines (docs/configuration.md), doubled where an order is given twice, and a poll more.
_DEADLINES_S: Mapping[str, float] = MappingProxyType(
    {
        "forming": 120.0,
        "starting": 120.0,
        "stopping": 60.0,
        "replanning": 60.0,
        "waiting_capacity": 120.0,
        "restoring": 120.0,
        "warming": 120.0,
    }
)
# core.hang_patience_s beyond core.stall_timeout_s is over by then.
HANG_PATIENCE_S = 60.0
_POLL_S = 15.0


def hangs_are_explained(round_: Round) -> Sequence[Violation]:
    """Of a job that is stalled it is known who holds it back, before patience ends."""
    return [
        Violation(last.at_s, last.job, f"stalled for {lasted:.0f} s: nobody knows why", first.at_s)
        for first, last in _spells(round_, lambda one: one.state == "stalled" and not one.hang)
        if (lasted := last.at_s - first.at_s) > HANG_PATIENCE_S
        and not _may_wait(round_, first, last)
    ]


def waits_are_bounded(round_: Round) -> Sequence[Violation]:
    """No job stays longer in a state that is to pass than it may."""
    found = []
    for state, limit_s in _DEADLINES_S.items():
        for first, last in _spells(round_, partial(_is_in, state)):
            lasted = last.at_s - first.at_s
            if lasted > limit_s + _POLL_S and not _may_wait(round_, first, last):
                told = f"{state} for {lasted:.0f} s: {last.reason}"
                found.append(Violation(last.at_s, last.job, told, first.at_s))
    return found


def _is_in(state: str, one: JobSeen) -> bool:
    return one.state == state


def _may_wait(round_: Round, first: JobSeen, last: JobSeen) -> bool:
    """Return whether faults lasted until shortly before the wait ended."""
    nodes = next((one.nodes for one in round_.results if one.job == first.job), ())
    return explained(round_, Excuse.WAIT, last.at_s, nodes, first.job)


def _spells(round_: Round, is_so: Callable[[JobSeen], bool]) -> Iterator[tuple[JobSeen, JobSeen]]:
    """Yield the first and the last sight of each time that a job was so without a break."""
    by_job = sorted(round_.jobs, key=lambda one: (one.job, one.at_s))
    for _, seen in groupby(by_job, key=lambda one: one.job):
        for so, spell in groupby(seen, key=is_so):
            if so:
                yield _ends(spell)


def _ends(spell: Iterable[JobSeen]) -> tuple[JobSeen, JobSeen]:
    told = list(spell)
    return told[0], told[-1]
