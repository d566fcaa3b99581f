"""Which optimizer's state another one may take."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from everstep.state.objects.optimizers import other_kind

SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0}
ADAM = {"lr": 0.1, "betas": (0.9, 0.999), "amsgrad": False}


@dataclass
class Optimizer:
    """The options of one, all of one group."""

    defaults: Mapping[str, object]

    @property
    def param_groups(self) -> list[Mapping[str, object]]:
        return [{"params": [], **self.defaults}]


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        (SGD, SGD),
        (ADAM, {**ADAM, "fused": None}),  # a newer torch restores
        ({**ADAM, "fused": None}, ADAM),
        ({**ADAM, "initial_lr": 0.1, "max_momentum": 0.9}, {**ADAM, "fused": None}),  # a scheduler
    ],
)
def test_the_same_kind_is_taken_whatever_was_added(
    saved: Mapping[str, object], here: Mapping[str, object]
) -> None:
    assert other_kind(Optimizer(here), [{"params": [0], **saved}]) == ""


def test_another_kind_is_told_by_its_options() -> None:
    told = other_kind(Optimizer(SGD), [{"params": [0], **ADAM}])
    assert told == "was saved by one of another kind: its groups have 'amsgrad', and no 'dampening'"
