"""Optimizers of torch in a state: what a first step adds, and state of another kind."""

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, cast

Group = Mapping[str, object]
# Names of the state of one parameter: tensors of its shape, and single numbers.
_Growth = tuple[tuple[str, ...], tuple[str, ...]]
_STEP = ("step",)


def _adam(group: Group) -> _Growth:
    largest = ("max_exp_avg_sq",) if group.get("amsgrad") else ()
    return ("exp_avg", "exp_avg_sq", *largest), _STEP


def _sgd(group: Group) -> _Growth:
    return (("momentum_buffer",) if group.get("momentum") else ()), ()


def _rms(group: Group) -> _Growth:
    momentum = ("momentum_buffer",) if group.get("momentum") else ()
    centered = ("grad_avg",) if group.get("centered") else ()
    return ("square_avg", *momentum, *centered), _STEP


# torch.optim's own, of which a parameter's state follows from its group. Adagrad makes its state at
# once; Adafactor's and LBFGS's do not have the parameters' shapes.
_GROWTH: Mapping[str, Callable[[Group], _Growth]] = MappingProxyType(
    {
        "Adam": _adam,
        "AdamW": _adam,
        "NAdam": lambda _: (("exp_avg", "exp_avg_sq"), ("step", "mu_product")),
        "RAdam": lambda _: (("exp_avg", "exp_avg_sq"), _STEP),
        "Adamax": lambda _: (("exp_avg", "exp_inf"), _STEP),
        "Adadelta": lambda _: (("square_avg", "acc_delta"), _STEP),
        "ASGD": lambda _: (("ax",), ("step", "eta", "mu")),
        "RMSprop": _rms,
        "Rprop": lambda _: (("prev", "step_size"), _STEP),
        "SGD": _sgd,
    }
)


def grown(
    optimizer: object, saved: Mapping[str, object], parameters: Mapping[str, object]
) -> dict[str, object] | None:
    """Return an optimizer's state as it is after its first step, but for the values.

    None: that is not known. ``parameters``: those that will be updated, by their names in the
    state. In the place of what is to come stand the parameters themselves.
    """
    state = dict(cast(Mapping[str, object], saved["state"]))
    kind = type(optimizer)
    growth = _GROWTH.get(kind.__name__) if kind.__module__.startswith("torch.optim.") else None
    for group in cast(list[Group], saved["param_groups"]):
        for name in cast(list[str], group["params"]):
            if name in state or name not in parameters:
                continue
            if growth is None:
                return None
            like, numbers = growth(group)
            state[name] = dict.fromkeys(like, parameters[name]) | dict.fromkeys(numbers, _number())
    return {**saved, "state": state}


def _number() -> object:
    return sys.modules["torch"].tensor(0.0)


# What a scheduler adds to the options of a group: "initial_lr", "max_lr", "base_momentum" …
_SCHEDULED = ("_lr", "_momentum")


class Grouped(Protocol):
    """A torch optimizer's options."""

    @property
    def defaults(self) -> Mapping[str, object]:
        """Return those that the optimizer was made with."""
        ...

    @property
    def param_groups(self) -> Sequence[Mapping[str, object]]:
        """Return those of each group of parameters, and the parameters."""
        ...


def other_kind(here: Grouped, saved: Sequence[Mapping[str, object]]) -> str:
    """Return what shows that another kind of optimizer saved these groups; "": nothing does.

    Only what differs in both directions: a newer torch adds options, and an older one lacks them.
    """
    for then, now in zip(saved, here.param_groups, strict=False):
        missing = sorted(set(here.defaults) - set(then))
        more = sorted(key for key in set(then) - set(now) if not key.endswith(_SCHEDULED))
        if missing and more:
            return (
                f"was saved by one of another kind: its groups have {more[0]!r}, and no"
                f" {missing[0]!r}"
            )
    return ""
