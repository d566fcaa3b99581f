"""Dictionaries, lists, sets and deques of the script as parts of its state, restored in place.

A number or a text cannot: the script would never see the one that is restored, nor a snapshot the
one that the script has by then.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import cast

from everstep.copy_engine.views import StateError
from everstep.state.memory.arrays import IMMUTABLE, is_immutable
from everstep_common.printable import with_article

Container = dict[object, object] | list[object] | set[object] | deque[object]
_CONTAINERS = (dict, list, set, deque)
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))


@dataclass(frozen=True, slots=True)
class Contained:
    """A container as a Stateful."""

    container: Container

    def state_dict(self) -> Container:
        """Return what it holds now."""
        inner = self.container
        # A dictionary of another class (a defaultdict) is saved as the dictionary that it is.
        return dict(inner) if isinstance(inner, dict) else inner

    def load_state_dict(self, state: object) -> None:
        """Have it hold this; raises TypeError for what another kind of container held."""
        if put_back(self.container, state) is not self.container:
            kind = with_article(type(self.container).__name__)
            raise TypeError(f"it is {kind}, not {type(state).__name__}")


def contained(state: Mapping[str, object]) -> Mapping[str, object]:
    """Return a state with its containers as Statefuls. Raises StateError for what is constant."""
    found = dict(state)
    for name, part in state.items():
        if isinstance(part, _CONSTANTS):
            raise StateError(_constant(name, part))
        if is_container(part):
            with suppress(RecursionError):  # it holds itself: that is said when it is looked at
                _refuse_immutable(name, part)
            found[name] = Contained(cast(Container, part))
    return found


def is_container(part: object) -> bool:
    """Return whether a part of a state is a container that is none of an own class's state."""
    return isinstance(part, _CONTAINERS) and not hasattr(part, "load_state_dict")


def put_back(here: object, saved: object) -> object:
    """Return what was saved: ``here`` itself, where it is a container that can hold it."""
    match here, saved:
        case dict(), dict():
            items = [(key, put_back(here.get(key), value)) for key, value in saved.items()]
            here.clear()
            for key, value in items:  # a Counter's update() would count them
                here[key] = value
        case list(), list():
            pairs = zip_longest(here[: len(saved)], saved)
            here[:] = [put_back(old, new) for old, new in pairs]
        case set(), set():
            here.clear()
            here.update(saved)
        case (deque(), deque()) if here.maxlen == saved.maxlen:
            here.clear()
            here.extend(saved)
        case _:
            return saved
    return here


def _refuse_immutable(name: str, part: object) -> None:
    if is_immutable(part):
        raise StateError(f"part {name!r} of the state is immutable: {IMMUTABLE}")
    if isinstance(part, dict | list | tuple):
        for inner in part.values() if isinstance(part, dict) else part:
            _refuse_immutable(name, inner)


def _constant(name: str, part: object) -> str:
    kind = "None" if part is None else with_article(type(part).__name__)
    return (
        f"part {name!r} of the state is {kind}, which cannot be restored in place; keep it in a"
        f' dictionary, {{"progress": progress}}, and use progress[{name!r}]'
    )
