"""Invariants of waits: no state of a job outlasts its deadline, and no hang stays unexplained."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType

from field.faults.catalogue import KINDS, Verdict
from field.invariants.violations import Violation, concerns, covered_s, explained, explains
from field.observation.records import Excuse, Fault, JobResult, JobSeen, Round

# Shipped deadlines (docs/configuration.md), doubled where an order is given twice, and a poll more.
_DEADLINES_S: Mapping[str, float] = MappingProxyType(
    {
        "forming": 120.0,
        "starting": 120.0,
        "stopping": 60.0,
        "replanning": 60.0,
        "waiting_capacity": 120.0,
        "backing_off": 600.0,
        "restoring": 120.0,
        "warming": 120.0,
    }
)
# core.hang_patience_s beyond core.stall_timeout_s is over by then.
HANG_PATIENCE_S = 60.0
_POLL_S = 15.0
# Events are read as often at least; where it was not kept when one happened, it may be as old.
_EVENTS_S = 30.0
_DISTRUST = "do not trust each other"
# By so much a fault may step the controller's clock, by which it is told when something happened.
_STEPPED_S = 30.0
# What hinders a judge hinders it a while longer: agents come back, a job starts again.
_HINDERED_S = 15.0


def hangs_are_explained(round_: Round) -> Sequence[Violation]:
    """Of a job that is stalled it is known who holds it back, before patience ends."""
    return [
        Violation(last.at_s, last.job, f"stalled for {lasted:.0f} s: nobody knows why", first.at_s)
        for first, last in _spells(round_, lambda one: one.state == "stalled" and not one.hang)
        if (lasted := last.at_s - first.at_s) > HANG_PATIENCE_S
        and not _may_wait(round_, first, last, judged=True)
    ]


def faults_are_told(round_: Round) -> Sequence[Violation]:
    """Of a fault that holds up a job which trains, people are told in time what it is.

    Time in which another fault takes the agents, the controller or the job itself does not count.
    """
    found = []
    for fault, verdict in _with_verdicts(round_):
        for result in _held_up(round_, fault, verdict):
            until_s = min(fault.ended_s, result.ended_s, _restarted_s(round_, result, fault))
            within_s = verdict.within_s + _hindered_s(round_, fault, result, until_s)
            by_s = fault.begun_s + within_s
            if by_s < until_s and not _is_told(round_, verdict, result.job, fault.begun_s, by_s):
                told = f"{fault.kind} for {until_s - fault.begun_s:.0f} s, and nobody was told"
                found.append(Violation(until_s, result.job, told, fault.begun_s))
    return found


def _with_verdicts(round_: Round) -> Iterator[tuple[Fault, Verdict]]:
    for fault in round_.faults:
        verdict = _verdict(fault)
        if verdict is not None and not fault.failed:
            yield fault, verdict


def _verdict(fault: Fault) -> Verdict | None:
    kind = KINDS.get(fault.kind)
    return None if kind is None else kind.verdict


def _is_hang(fault: Fault) -> bool:
    verdict = _verdict(fault)
    return verdict is not None and verdict.of_hang


def _held_up(round_: Round, fault: Fault, verdict: Verdict) -> Iterator[JobResult]:
    """Yield the jobs that trained when a fault came that holds them up."""
    for one in round_.results:
        is_one = one.shape == verdict.shape if verdict.shape else one.job == fault.job
        if is_one and _trained(round_, one, fault.begun_s):
            yield one


def _trained(round_: Round, result: JobResult, at_s: float) -> bool:
    """Return whether a job was last seen to make steps."""
    seen = [one for one in round_.jobs if one.job == result.job and one.at_s <= at_s]
    last = max(seen, key=lambda one: one.at_s, default=None)
    return last is not None and last.state == "running" and last.step >= 0


def _restarted_s(round_: Round, result: JobResult, fault: Fault) -> float:
    """Return when a job was seen to have begun anew after a fault, which is past for it then."""
    seen = sorted((one for one in round_.jobs if one.job == result.job), key=lambda one: one.at_s)
    before = [one.generation for one in seen if one.at_s <= fault.begun_s]
    after = (one.at_s for one in seen if one.at_s > fault.begun_s and one.generation != before[-1])
    return next(after, result.ended_s)


def _hindered_s(round_: Round, fault: Fault, result: JobResult, until_s: float) -> float:
    """Return how long another fault kept people from being told."""

    def hinders(other: Fault) -> bool:
        excuses = (Excuse.WAIT, Excuse.REDO, Excuse.UNSAVED)
        return other != fault and any(
            concerns(other, one, result.nodes, result.job) for one in excuses
        )

    return covered_s(round_, fault.begun_s, until_s, hinders, _HINDERED_S)


def _is_told(round_: Round, verdict: Verdict, job: str, from_s: float, by_s: float) -> bool:
    for one in round_.events:
        is_it = one.reason == verdict.reason and one.subject == job
        if is_it and re.search(verdict.words, one.message) is not None:
            happened_s, late_s = one.happened_s, 0.0
            if happened_s is None:
                happened_s, late_s = one.at_s, _EVENTS_S
            if from_s - _STEPPED_S <= happened_s <= by_s + late_s:
                return True
    return False


def commands_are_answered(round_: Round) -> Sequence[Violation]:
    """A command of an operator is answered, unless a fault takes the controller, and told that."""
    everywhere = tuple(round_.machines)
    found = []
    for one in round_.observation_gaps:
        # "357.3 s: everstep nodes: no controller answers"
        at_s = float(one.partition(" s: ")[0])
        # Certificates are right in the field: whoever cuts a connection, trust is not to blame.
        if _DISTRUST in one or not explained(round_, Excuse.SILENCE, at_s, everywhere):
            found.append(Violation(at_s, "controller", f"no answer: {one}"))
    return found


def waits_are_bounded(round_: Round) -> Sequence[Violation]:
    """No job stays longer in a state that is to pass than it may.

    The launcher of a machine that was away as its job ended begins another one, which waits.
    """
    over_s = {one.job: one.ended_s for one in round_.results if one.finished}
    found = []
    for state, limit_s in _DEADLINES_S.items():
        for first, last in _spells(round_, partial(_is_in, state)):
            lasted = last.at_s - first.at_s
            if first.at_s > over_s.get(first.job, round_.lasted_s):
                continue
            if lasted > limit_s + _POLL_S and not _may_wait(round_, first, last):
                told = f"{state} for {lasted:.0f} s: {last.reason}"
                found.append(Violation(last.at_s, last.job, told, first.at_s))
    return found


def _is_in(state: str, one: JobSeen) -> bool:
    return one.state == state


def _may_wait(round_: Round, first: JobSeen, last: JobSeen, judged: bool = False) -> bool:
    """Return whether faults lasted until shortly before the wait ended.

    What has to be judged itself is no reason for a wait in which nobody was.
    """
    nodes = next((one.nodes for one in round_.results if one.job == first.job), ())
    return any(
        explains(one, Excuse.WAIT, last.at_s, nodes, first.job)
        for one in round_.faults
        if not (judged and _is_hang(one))
    )


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
