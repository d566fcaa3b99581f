"""Registry of handlers: for each event and each timer the one function that takes it.

A module lists what it takes under its functions, in ``HANDLERS`` and ``TIMERS``; its package merges
the lists of its modules, and the core those of the packages.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from everstep_controller.core import events
from everstep_controller.core.turn import TimerKind, Turn

# Each takes exactly the event that it is listed under.
Handlers = Mapping[type, Callable[[Turn, Any], None]]
# Each takes the subject of the timer: the part of its name after the slash.
Timers = Mapping[TimerKind, Callable[[Turn, str], None]]
_Key = TypeVar("_Key")
_Taker = TypeVar("_Taker")


class RegistrationError(Exception):
    """Two modules take the same event or timer, or none takes it."""


def job_timers(*kinds: TimerKind) -> Timers:
    """Return what takes timers of jobs: that they came due is news of the job, and all it is."""
    return {kind: partial(_record_due, kind) for kind in kinds}


def _record_due(kind: TimerKind, turn: Turn, job_id: str) -> None:
    job = turn.state.jobs.get(job_id)
    if job is not None:
        job.news.due.append(kind)
        turn.mark_job(job_id)


def merge(parts: Iterable[Mapping[_Key, _Taker]]) -> dict[_Key, _Taker]:
    """Return who takes each event, or each timer. Raises RegistrationError where two do."""
    merged: dict[_Key, _Taker] = {}
    for part in parts:
        if twice := sorted(map(str, merged.keys() & part.keys())):
            raise RegistrationError(f"taken twice: {', '.join(twice)}")
        merged.update(part)
    return merged


def merge_handlers(packages: Iterable[Handlers]) -> Handlers:
    """Return who takes each event of all. Raises RegistrationError."""
    merged = merge(packages)
    orders = {kind for kind in merged if issubclass(kind, events.OperatorOrder)}
    return _complete(merged, (events.event_kinds() | orders) - {events.TimerDue})


def merge_timers(packages: Iterable[Timers]) -> Timers:
    """Return who takes each kind of timer. Raises RegistrationError."""
    return _complete(merge(packages), set(TimerKind))


def _complete(merged: dict[_Key, _Taker], wanted: set[_Key]) -> Mapping[_Key, _Taker]:
    if missing := sorted(map(str, wanted - merged.keys())):
        raise RegistrationError(f"taken by no package: {', '.join(missing)}")
    if unknown := sorted(map(str, merged.keys() - wanted)):
        raise RegistrationError(f"taken, and there is no such thing: {', '.join(unknown)}")
    return merged
