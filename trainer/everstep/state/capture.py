"""Which Capture a state gets: plain arrays keep their names, all else is taken apart."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from everstep.state import paths
from everstep.state.containers import contained
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

    ``equal`` names what is equal in every rank of the job: arrays, and objects with all of their
    arrays; ``replaceable`` objects of which another rank's private things may stand in for lost
    ones. Raises StateError.
    """
    if isinstance(state, Capture):
        return state
    _refuse_unnamed(state, {"equal": equal, "replaceable": replaceable})
    state = contained(state)
    objects = {name: thing for name, thing in state.items() if is_stateful(thing)}
    arrays = {name: array for name, array in state.items() if name not in objects}
    _refuse_unknown("equal", equal, state, "part of the state")
    known = {**objects, RANDOM: None} if objects else {}
    _refuse_unknown("replaceable", replaceable, known, "object with a state_dict()")
    plain = PlainCapture(arrays, place, equal)
    if not objects:
        return plain
    place = replace(place, replaceable=frozenset(replaceable))
    return StatefulCapture(_objects(objects, equal, place), plain, place)


def is_stateful(thing: object) -> bool:
    """Return whether it has state_dict() and load_state_dict()."""
    return isinstance(thing, Stateful) and not isinstance(thing, type)


def _refuse_unknown(
    option: str, names: Collection[str], known: Mapping[str, object], what: str
) -> None:
    if unknown := sorted(set(names) - known.keys()):
        raise StateError(f"{option} names {unknown[0]!r}, which is no {what}")


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
