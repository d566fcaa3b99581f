"""Optimizer kind check: finds state of another kind of optimizer, which torch itself would load."""

from collections.abc import Mapping, Sequence
from typing import Protocol

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
