"""Slots are made for what an optimizer's first step will add, and not again after it."""

import copy
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import everstep
from everstep.copy_engine.views import offsets
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from everstep.state.stateful import StatefulCapture
from everstep_common.rank_messages import Reserve
from fakes.waits import wait_until
from integration.trainer_node import Node

Optimizer = Callable[..., torch.optim.Optimizer]
# A tensor of the model is larger than all that the structures may differ by.
WIDTH = 256
SLACK_BYTES = 32 * 1024

KNOWN: list[tuple[Optimizer, dict[str, object]]] = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {"fused": True}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Adagrad, {}),
    (torch.optim.ASGD, {}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (torch.optim.Rprop, {}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
]


class Training:
    def __init__(self, optimizer: Optimizer, **options: object) -> None:
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        self.model[0].bias.requires_grad_(False)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01, **options)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2, WIDTH)).square().mean().backward()
        self.optimizer.step()

    def state(self) -> dict[str, object]:
        return {"model": self.model, "optimizer": self.optimizer}


def captured(training: Training, place: Place) -> StatefulCapture:
    capture = capture_of(training.state(), place, equal=("model", "optimizer"))
    assert isinstance(capture, StatefulCapture)
    return capture


@pytest.mark.parametrize(("optimizer", "options"), KNOWN)
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_size_after_the_first_step_is_known_before_it(
    optimizer: Optimizer, options: dict[str, object], ranks: int
) -> None:
    training = Training(optimizer, **options)
    captures = [captured(training, Place(rank, ranks)) for rank in range(ranks)]
    before = copy.deepcopy(training.optimizer.state_dict())
    ahead = [capture.bytes_ahead() for capture in captures]
    assert training.optimizer.state_dict().keys() == before.keys()
    assert len(training.optimizer.state_dict()["state"]) == len(before["state"])
    training.step()
    after = [offsets(capture.views())[1] for capture in captures]
    assert ahead == pytest.approx(after, abs=SLACK_BYTES)
    assert [capture.bytes_ahead() for capture in captures] == pytest.approx(after, abs=SLACK_BYTES)


class Unknown(torch.optim.SGD):
    """An optimizer of which nobody knows what its step adds."""


def test_nothing_is_said_of_an_optimizer_that_is_not_known() -> None:
    training = Training(Unknown, momentum=0.9)
    capture = captured(training, Place())
    assert capture.bytes_ahead() is None
    training.model[0].bias.requires_grad_(True)
    training.step()
    assert capture.bytes_ahead() is not None


def test_nothing_is_said_of_parameters_without_a_name() -> None:
    training = Training(torch.optim.AdamW)
    capture = capture_of({"optimizer": training.optimizer}, Place())
    assert isinstance(capture, StatefulCapture)
    assert capture.bytes_ahead() is None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    begun = Node.begin(tmp_path)
    yield begun
    begun.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_the_slots_are_made_once_and_before_the_first_step(node: Node, overlap: bool) -> None:
    training = Training(torch.optim.AdamW)
    snapshots = everstep.init(node.environ()).snapshots(training.state(), overlap=overlap)
    assert snapshots.restore() is None
    reserved: list[object] = []

    def asked() -> bool:
        reserved.extend(node.heard(Reserve))
        return bool(reserved)

    wait_until(asked)
    for step in range(3):
        training.step()
        assert snapshots.snapshot(step)
    assert snapshots.join()
    assert len(reserved) == 1
    assert node.heard(Reserve) == []


def test_memory_that_is_refused_is_told_before_the_first_step(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.agent.refuse_reserve = "30 MiB would fit"
    training = Training(torch.optim.AdamW)
    with caplog.at_level(logging.WARNING, "everstep"):
        everstep.init(node.environ()).snapshots(training.state()).restore()
        wait_until(lambda: "30 MiB would fit" in caplog.text)
