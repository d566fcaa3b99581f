"""Which Capture a state gets: plain arrays keep their names, objects are taken apart."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from everstep.state import paths
from everstep.state.objects import Object, Stateful, objects_of
from everstep.state.parts import Place
from everstep.state.plain import PlainCapture
from everstep.state.random_state import RandomState
from everstep.state.stateful import StatefulCapture
from everstep.state.views import Capture, State, StateError

RANDOM = "random"


def capture_of(
    state: State | Capture,
    place: Place,
    equal: Collection[str] = (),
    replaceable: Collection[str] = (),
) -> Capture:
    """Return the Capture of a state.

    ``equal`` names objects whose arrays are equal in every rank of the job, ``replaceable`` those
    of which another rank's private things may stand in for lost ones. Raises StateError.
    """
    if isinstance(state, Capture):
        return state
    _refuse_unnamed(state, {"equal": equal, "replaceable": replaceable})
    objects = {name: thing for name, thing in state.items() if is_stateful(thing)}
    arrays = {name: array for name, array in state.items() if name not in objects}
    _refuse_unknown("equal", equal, objects)
    if not objects:
        _refuse_unknown("replaceable", replaceable, objects)
        return PlainCapture(arrays)
    _refuse_unknown("replaceable", replaceable, {**objects, RANDOM: None})
    place = replace(place, replaceable=frozenset(replaceable))
    return StatefulCapture(_objects(objects, equal, place), arrays, place)


def is_stateful(thing: object) -> bool:
    """Return whether it has state_dict() and load_state_dict()."""
    return isinstance(thing, Stateful) and not isinstance(thing, type)


def _refuse_unknown(option: str, names: Collection[str], objects: Mapping[str, object]) -> None:
    if unknown := sorted(set(names) - objects.keys()):
        raise StateError(f"{option} names {unknown[0]!r}, which is no object with a state_dict()")


def _refuse_unnamed(state: object, options: Mapping[str, object]) -> None:
    if not isinstance(state, Mapping):
        raise StateError(
            f"the state is a {type(state).__name__}; name its parts:"
            ' {"model": model, "optimizer": optimizer}'
        )
    for name in state:
        if not isinstance(name, str):
            raise StateError(f"a part of the state is called {name!r}; names are strings")
    for option, names in options.items():
        if isinstance(names, str):
            raise StateError(f"{option}: expected several names, got {names!r}; write [{names!r}]")


def _objects(things: Mapping[str, object], equal: Collection[str], place: Place) -> list[Object]:
    try:
        for name in things:
            paths.refuse_object_name(name)
    except paths.PathError as error:
        raise StateError(str(error)) from error
    stateful = {name: thing for name, thing in things.items() if isinstance(thing, Stateful)}
    if not any(isinstance(thing, RandomState) for thing in stateful.values()):
        stateful.setdefault(RANDOM, RandomState())
    return objects_of(stateful, equal, place)
