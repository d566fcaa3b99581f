"""Optimizers wait for the snapshot of the step before."""

import gc

import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks as hooks

from everstep.saving.snapshotter import settle_before_updates


class Counted:
    """Counts how often it was settled, and what the weight was then."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        self._weight = weight
        self.seen: list[float] = []

    def settle(self) -> None:
        self.seen.append(float(self._weight.detach()))


def updated(weight: torch.nn.Parameter) -> None:
    weight.grad = torch.tensor(-1.0)
    torch.optim.SGD([weight], lr=1.0).step()


def test_every_optimizer_of_the_process_settles_before_it_changes_anything() -> None:
    weight = torch.nn.Parameter(torch.tensor(0.0))
    snapshots = Counted(weight)
    settle_before_updates([], snapshots)
    updated(weight)
    updated(weight)
    assert snapshots.seen == [0.0, 1.0]


def test_snapshots_that_are_gone_hold_nothing_up_and_leave_no_hook() -> None:
    weight = torch.nn.Parameter(torch.tensor(0.0))
    gc.collect()
    before = len(hooks)
    snapshots = Counted(weight)
    settle_before_updates([], snapshots)
    assert len(hooks) == before + 1
    del snapshots
    gc.collect()
    assert len(hooks) == before
    updated(weight)


def test_an_optimizer_of_another_library_is_asked_for_its_hook() -> None:
    weight = torch.nn.Parameter(torch.tensor(0.0))
    snapshots = Counted(weight)

    class Other:
        """Has the hook, and nothing else of torch."""

        def register_step_pre_hook(self, hook: object) -> object:
            assert callable(hook)
            hook(self, (), {})
            return None

    settle_before_updates([Other(), object()], snapshots)
    assert snapshots.seen == [0.0]
