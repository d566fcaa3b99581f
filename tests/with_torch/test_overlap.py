"""Snapshots of a torch model beside the next step: what comes back is one step, to the bit."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import everstep
from integration.trainer_node import Node

# Large enough for several pieces.
SIZE = 48 * 1024 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


def restored(node: Node, step: int, like: np.ndarray) -> np.ndarray:
    """Return what a new process gets back for a step."""
    node.vault.restore_step = step
    target = np.zeros_like(like)
    assert everstep.init(node.environ()).snapshots({"a": target}).restore() == step
    return target


def test_an_optimizer_that_is_no_part_of_the_state_settles_its_snapshot_before_it_updates(
    node: Node,
) -> None:
    weights = torch.nn.Parameter(torch.zeros(SIZE // 4))
    optimizer = torch.optim.SGD([weights], lr=1.0)

    state = {"a": weights.detach().numpy()}
    snapshots = everstep.init(node.environ()).snapshots(state, overlap=True)
    snapshots.restore()
    for step in range(4):
        weights.grad = torch.full_like(weights, -1.0)
        optimizer.step()
        assert snapshots.snapshot(step)
    assert snapshots.join()
    for step in (0, 3):
        assert (restored(node, step, weights.detach().numpy()) == step + 1).all()


def train(node: Node, first: int, restore_step: int | None) -> list[str]:
    """Train from a step on, with a snapshot of each; return the losses, exactly."""
    node.vault.restore_step = restore_step
    torch.manual_seed(1)
    layers = (torch.nn.Linear(64, 512), torch.nn.BatchNorm1d(512), torch.nn.Linear(512, 1))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run = everstep.init(node.environ())
    snapshots = run.snapshots({"model": model, "optimizer": optimizer}, overlap=True)
    assert snapshots.restore() == restore_step
    losses = []
    for step in range(first, 12):
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step))
        loss = model(batch + torch.rand(())).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert snapshots.snapshot(step)
        losses.append(float(loss.detach()).hex())
    assert snapshots.join()
    assert run.unsaved_steps == 0
    return losses


def test_a_model_trains_on_from_a_snapshot_as_if_nothing_had_happened(node: Node) -> None:
    whole = train(node, 0, None)
    for step in (0, 5):
        assert train(node, step + 1, step) == whole[step + 1 :]


def by_torch(average: torch.nn.Linear) -> Callable[[], None]:
    def update() -> None:
        with torch.no_grad():
            average.weight.mul_(0.9)

    return update


def by_data(average: torch.nn.Linear) -> Callable[[], None]:
    def update() -> None:
        average.weight.data.mul_(0.9)

    return update


@pytest.mark.parametrize("change", [by_torch, by_data])
def test_an_average_that_changes_before_the_optimizers_step_is_never_saved_torn(
    node: Node,
    change: Callable[[torch.nn.Linear], Callable[[], None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, average = torch.nn.Linear(4, 4), torch.nn.Linear(SIZE // 4, 1)
    state = {"model": model, "average": average}
    update = change(average)
    run = everstep.init(node.environ())
    snapshots = run.snapshots(state, overlap=True)
    snapshots.restore()
    with node.agent.hung():  # the copy has not begun when the state changes
        assert snapshots.snapshot(0)
        update()
    assert not snapshots.join()
    assert run.unsaved_steps == 1
    assert "'rank-0/average/weight' was changed while step 0 was copied" in caplog.text
    assert 0 not in node.vault.saved

    assert snapshots.snapshot(1)
    snapshots.settle()
    update()
    assert snapshots.join()
