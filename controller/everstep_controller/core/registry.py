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
_PACKAGE = __name__.partition(".")[0]
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
    wanted = (events.event_kinds() | orders) - {events.TimerDue}
    if missing := _names(_orders(events.OperatorOrder)) - _names(wanted):
        raise RegistrationError(_taken_by_none(missing))
    return _complete(merged, wanted)


def merge_timers(packages: Iterable[Timers]) -> Timers:
    """Return who takes each kind of timer. Raises RegistrationError."""
    return _complete(merge(packages), set(TimerKind))


def _complete(merged: dict[_Key, _Taker], wanted: set[_Key]) -> Mapping[_Key, _Taker]:
    if missing := wanted - merged.keys():
        raise RegistrationError(_taken_by_none(map(str, missing)))
    if unknown := sorted(map(str, merged.keys() - wanted)):
        where = "events are lines of core/events, reports of reports/jobs.py, timers of TimerKind"
        raise RegistrationError(f"taken, and there is no such thing: {', '.join(unknown)}; {where}")
    return merged


def _taken_by_none(names: Iterable[str]) -> str:
    listed = ", ".join(sorted(names))
    where = "HANDLERS (a timer: TIMERS) of the module whose function takes it"
    return f"taken by no package: {listed}; add a line to {where}"


def _orders(kind: type) -> set[type]:
    """Return all orders that are defined in modules that were imported, also those nobody lists."""
    known: list[type] = kind.__subclasses__()
    below = {one for one in known if one.__module__.startswith(_PACKAGE)}
    return below.union(*map(_orders, below))


def _names(kinds: Iterable[type]) -> set[str]:
    # By name: a dataclass with slots replaces a class that Python remembers for a while.
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
