"""Registry of handlers: for each event and each timer the one package that takes it."""

import typing
from collections.abc import Callable, Iterable, Mapping
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
    """Two packages take the same event or timer, or none takes it."""


def merge_handlers(packages: Iterable[Handlers]) -> Handlers:
    """Return who takes each event. Raises RegistrationError."""
    return _merge(packages, kinds_of_events() - {events.TimerDue})


def kinds_of_events() -> set[type]:
    """Return what there is to handle: types of events, and of the reports that agents send."""
    found = typing.get_args(events.Event)
    # Of Reported[LauncherLeft], LauncherLeft.
    return {next(iter(typing.get_args(kind)), kind) for kind in found}


def merge_timers(packages: Iterable[Timers]) -> Timers:
    """Return who takes each kind of timer. Raises RegistrationError."""
    return _merge(packages, set(TimerKind))


def _merge(packages: Iterable[Mapping[_Key, _Taker]], wanted: set[_Key]) -> Mapping[_Key, _Taker]:
    merged: dict[_Key, _Taker] = {}
    for package in packages:
        if twice := sorted(map(str, merged.keys() & package.keys())):
            raise RegistrationError(f"taken by two packages: {', '.join(twice)}")
        merged.update(package)
    if missing := sorted(map(str, wanted - merged.keys())):
        raise RegistrationError(f"taken by no package: {', '.join(missing)}")
    if unknown := sorted(map(str, merged.keys() - wanted)):
        raise RegistrationError(f"taken, and there is no such thing: {', '.join(unknown)}")
    return merged
