"""Choice of the Capture for a state: plain arrays keep their names, all else is taken apart."""

import re
import sys
from collections.abc import Collection, Container, Mapping
from dataclasses import replace

from everstep.copy_engine.views import Capture, State, StateError
from everstep.state.objects import paths
from everstep.state.objects.containers import contained
from everstep.state.objects.kinds import NO_REPLICA, Object, Stateful, any_object
from everstep.state.objects.random_state import RandomState
from everstep.state.plain import PlainCapture
from everstep.state.shards.parts import Place
from everstep.state.stateful import StatefulCapture
from everstep_common.printable import with_article

RANDOM = "random"
# Lone surrogates have no UTF-8.
_UNTELLABLE = re.compile(r"[\ud800-\udfff]")


def capture_of(
    state: State | Capture,
    place: Place,
    equal: Collection[object] = (),
    replaceable: Collection[str] = (),
) -> Capture:
    """Return the Capture of a state.

    ``equal`` names what is equal in every rank of the job: arrays, and objects with all of their
    arrays; a DistributedDataParallel in it says so of its parameters. ``replaceable`` names objects
    of which another rank's private things may stand in for lost ones. Raises StateError.
    """
    if isinstance(state, Capture):
        return state
    _refuse_unnamed(state, {"equal": equal, "replaceable": replaceable})
    state = contained(state)
    objects = {name: thing for name, thing in state.items() if is_stateful(thing)}
    arrays = {name: array for name, array in state.items() if name not in objects}
    names = frozenset(one for one in equal if isinstance(one, str))
    replicas = _replicas(equal)
    _refuse_unknown("equal", names, state, "part of the state")
    known = {**objects, RANDOM: None} if objects else {}
    _refuse_unknown("replaceable", replaceable, known, "object with a state_dict()")
    plain = PlainCapture(arrays, place, names)
    if not objects:
        return plain
    place = replace(place, replaceable=frozenset(replaceable))
    return StatefulCapture(objects_of(_named(objects), names, place, replicas), plain, place)


def is_stateful(thing: object) -> bool:
    """Return whether it has state_dict() and load_state_dict()."""
    return isinstance(thing, Stateful) and not isinstance(thing, type)


def _refuse_unknown(
    option: str, names: Collection[str], known: Mapping[str, object], what: str
) -> None:
    if unknown := sorted(set(names) - known.keys()):
        raise StateError(f"{option} names {unknown[0]!r}, which is no {what}")


def _replicas(equal: Collection[object]) -> list[Stateful]:
    things = [one for one in equal if not isinstance(one, str)]
    found = [one for one in things if isinstance(one, Stateful)]
    if len(found) < len(things):
        raise StateError(NO_REPLICA)
    return found


def _refuse_unnamed(state: object, options: Mapping[str, object]) -> None:
    if not isinstance(state, Mapping):
        raise StateError(
            f"the state is {with_article(type(state).__name__)}; name its parts:"
            ' {"model": model, "optimizer": optimizer}'
        )
    for name in state:
        if not isinstance(name, str):
            raise StateError(f"a part of the state is called {name!r}; names are strings")
        if not name or _UNTELLABLE.search(name):
            raise StateError(f"a part of the state is called {name!r}, which cannot be written")
    for option, names in options.items():
        if isinstance(names, str):
            raise StateError(f"{option}: expected several names, got {names!r}; write [{names!r}]")


def _named(things: Mapping[str, object]) -> dict[str, Stateful]:
    """Return the objects, random numbers among them. Raises StateError."""
    try:
        for name in things:
            paths.refuse_object_name(name)
    except paths.PathError as error:
        raise StateError(str(error)) from error
    stateful = {name: thing for name, thing in things.items() if isinstance(thing, Stateful)}
    if not any(isinstance(thing, RandomState) for thing in stateful.values()):
        stateful.setdefault(RANDOM, RandomState())
    return stateful


def objects_of(
    stateful: Mapping[str, Stateful],
    equal: Container[str],
    place: Place,
    replicas: Collection[Stateful] = (),
) -> list[Object]:
    """Return the objects by their kind; modules name the parameters of the optimizers.

    ``replicas`` are torch's DistributedDataParallel around modules of the state. Raises StateError.
    """
    if "torch" not in sys.modules:
        if replicas:
            raise StateError(NO_REPLICA)
        return [any_object(name, thing, name in equal) for name, thing in stateful.items()]
    from everstep.state.objects.modules import Modules, replicas_among  # torch is there

    modules = Modules.among(stateful, place, replicas_among(replicas))
    return [modules.object_of(name, thing, name in equal) for name, thing in stateful.items()]
