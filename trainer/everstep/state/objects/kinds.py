"""Objects of a state: each with its state_dict in a form that is the same in every process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast, runtime_checkable

from everstep.copy_engine.views import OTHER_MODEL, RestoreError
from everstep.state.objects.optimizers import Grouped, grown, other_kind
from everstep.state.objects.paths import word

NO_REPLICA = "equal: expected names, and modules that are torch's DistributedDataParallel"


@runtime_checkable
class Stateful(Protocol):
    """Stateful, as torch calls it: a model, an optimizer, a scheduler, a data loader."""

    @property
    def state_dict(self) -> Callable[..., object]:
        """Return what returns the state: nested dicts and lists of arrays and scalars."""
        ...

    @property
    def load_state_dict(self) -> Callable[..., object]:
        """Return what takes the state back."""
        ...


class Object(Protocol):
    """One Stateful of the state, and what is known of it."""

    path: str
    # Whether another rank's state must not stand in for this rank's.
    own_only: bool

    def state(self) -> object:
        """Return its state."""
        ...

    def state_ahead(self) -> object | None:
        """Return its state as it will be after the first step, but for values; None: not known."""
        ...

    def refuse(self, state: object) -> None:
        """Raise RestoreError for a state that `load` could not take; changes nothing."""
        ...

    def load(self, state: object) -> None:
        """Hand it its state."""
        ...

    def equal(self, path: str) -> bool:
        """Return whether the array at ``path`` is equal in every rank of the job."""
        ...

    def fixed(self, path: str) -> bool:
        """Return whether the array at ``path`` must be there before, and of the same shape."""
        ...

    def like(self, path: str) -> object | None:
        """Return the array that the one at ``path``, which does not exist yet, belongs to."""
        ...


@dataclass(slots=True)
class AnyObject:
    """Stateful of which nothing more is known."""

    path: str
    stateful: Stateful
    all_equal: bool = False
    own_only: bool = False

    def state(self) -> object:
        """See Object."""
        return self.stateful.state_dict()

    def state_ahead(self) -> object | None:
        """See Object; an optimizer grows, by what nobody knows here."""
        return None if hasattr(self.stateful, "param_groups") else self.state()

    def refuse(self, state: object) -> None:
        """See Object; only the object itself knows."""

    def load(self, state: object) -> None:
        """See Object."""
        self.stateful.load_state_dict(state)

    def equal(self, path: str) -> bool:
        """See Object."""
        return self.all_equal

    def fixed(self, path: str) -> bool:
        """See Object."""
        return False

    def like(self, path: str) -> object | None:
        """See Object."""
        return None


def any_object(name: str, thing: Stateful, all_equal: bool) -> AnyObject:
    """Return a Stateful of which nothing is known but what it says itself."""
    return AnyObject(name, thing, all_equal, own_only=bool(getattr(thing, "own_only", False)))


@dataclass(slots=True)
class ModuleObject(AnyObject):
    """A torch.nn.Module."""

    # What DistributedDataParallel keeps equal: its parameters; buffers may differ between ranks.
    equal_paths: frozenset[str] = frozenset()

    def load(self, state: object) -> None:
        """See Object; modules keep versions for their own compatibility beside the mapping."""
        metadata = getattr(self.stateful.state_dict(), "_metadata", None)
        if metadata is not None and type(state) is not dict:
            state._metadata = metadata  # type: ignore[attr-defined]  # an OrderedDict takes it
        self.stateful.load_state_dict(state)

    def equal(self, path: str) -> bool:
        """See Object."""
        return self.all_equal or path in self.equal_paths

    def fixed(self, path: str) -> bool:
        """See Object; what get_extra_state() returns may be of any shape."""
        return not any(word.endswith("_extra_state") for word in path.split("/"))


@dataclass(slots=True)
class OptimizerObject(AnyObject):
    """A torch optimizer whose parameters have names: its state is filed under these."""

    # Of every parameter, in the order of the optimizer's groups.
    names: Sequence[Sequence[str]] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)
    equal_names: frozenset[str] = frozenset()

    def state(self) -> object:
        """See Object: names stand where torch has numbers that only this process understands."""
        saved = cast(dict[str, object], self.stateful.state_dict())
        return _renumbered(saved, dict(enumerate(self._flat())))

    def state_ahead(self) -> object | None:
        """See Object."""
        named = {name: self.parameters[word(name)] for name in self._flat()}
        updated = {name: one for name, one in named.items() if getattr(one, "requires_grad", True)}
        return grown(self.stateful, cast(dict[str, object], self.state()), updated)

    def refuse(self, state: object) -> None:
        """See Object: the same parameters have to be in the same groups, of the same kind."""
        groups = cast(list[dict[str, object]], cast(dict[str, object], state)["param_groups"])
        if problem := other_kind(cast(Grouped, self.stateful), groups):
            raise RestoreError(f"optimizer {self.path!r} {problem}{OTHER_MODEL}")
        saved = [set(cast(list[str], group["params"])) for group in groups]
        here = [set(group) for group in self.names]
        if saved == here:
            return
        others = sorted(set().union(*saved) ^ set().union(*here))
        problem = (
            f"parameter {others[0]!r} is only in one of the two"
            if others
            else "the same ones are grouped otherwise"
        )
        raise RestoreError(
            f"optimizer {self.path!r} was saved with {len(saved)} groups of parameters and has"
            f" {len(here)} here: {problem}{OTHER_MODEL}"
        )

    def load(self, state: object) -> None:
        """See Object; the order of the parameters here counts, not the one when it was saved."""
        saved = cast(dict[str, object], state)
        numbers: dict[object, object] = {name: number for number, name in enumerate(self._flat())}
        renumbered = _renumbered(saved, numbers)
        for group in cast(list[dict[str, object]], renumbered["param_groups"]):
            group["params"] = sorted(cast(list[int], group["params"]))
        self.stateful.load_state_dict(renumbered)

    def equal(self, path: str) -> bool:
        """See Object."""
        return self.all_equal or self._word(path) in self.equal_names

    def like(self, path: str) -> object | None:
        """See Object: the parameter that the state belongs to."""
        return self.parameters.get(self._word(path))

    def _flat(self) -> list[str]:
        return [name for group in self.names for name in group]

    def _word(self, path: str) -> str:
        """Return the name of the parameter, as it stands in the path of its state."""
        return path.removeprefix(f"{self.path}/state/").partition("/")[0]


def _renumbered(saved: dict[str, object], words: Mapping[object, object]) -> dict[str, object]:
    """Return an optimizer's state with other words for its parameters. Raises KeyError."""
    state = cast(dict[object, object], saved["state"])
    groups = cast(list[dict[str, object]], saved["param_groups"])
    return {
        **saved,
        "state": {words.get(key, key): value for key, value in state.items()},
        "param_groups": [
            {**group, "params": [words[key] for key in cast(list[object], group["params"])]}
            for group in groups
        ],
    }
