"""A state on a device: its snapshots beside a training that queues the next step at once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep.copy_engine.memory import Copier
from everstep.copy_engine.views import Restoration, ShardView
from everstep.rank.agent_link import AgentLink
from everstep.rank.environment import membership
from everstep.saving.policy import Policy
from everstep.saving.snapshotter import Snapshots
from everstep.saving.step_saving import Tools
from everstep_common.rank_messages import Entry
from fakes.device import FakeDevice, Tensor
from integration.trainer_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


@dataclass(slots=True)
class OneTensor:
    """The Capture of one tensor."""

    tensor: Tensor
    needs_description: bool = False

    def views(self) -> tuple[ShardView, ...]:
        size = len(self.tensor.data)
        return (ShardView("w", "U8", (size,), size, 0, self.tensor, cuda=self.tensor),)

    def targets(self, described: tuple[Entry, ...]) -> Restoration:
        raise AssertionError("nothing is restored here")


def begin(node: Node, device: FakeDevice, tensor: Tensor, *, overlap: bool) -> Snapshots:
    member = membership(node.environ())
    assert member
    link = AgentLink(member)
    assert link.attach(30.0)
    capture, policy = OneTensor(tensor), Policy(overlap=overlap)
    return Snapshots(capture, link, Tools(Copier(1), device=device), policy=policy)


def saved(node: Node, step: int) -> bytes:
    fd, entry, _ = node.vault.saved[step]["w"]
    return os.pread(fd, entry.size_bytes, entry.offset_bytes)


@pytest.mark.parametrize("overlap", [True, False])
def test_each_step_is_saved_as_it_was_though_the_next_one_is_queued(
    node: Node, overlap: bool
) -> None:
    device, tensor = FakeDevice(), Tensor(bytearray(8))
    snapshots = begin(node, device, tensor, overlap=overlap)

    def update() -> None:
        tensor.data[:] = bytes([tensor.data[0] + 1]) * 8

    for step in range(5):
        snapshots.settle()
        device.compute(0, update)
        assert snapshots.snapshot(step)
    assert snapshots.join()
    assert [saved(node, step)[0] for step in range(5)] == [1, 2, 3, 4, 5]
    assert snapshots.unsaved_steps == 0


def test_slots_are_pinned_once_and_given_back_before_they_are_unmapped(node: Node) -> None:
    device, tensor = FakeDevice(), Tensor(bytearray(8))
    snapshots = begin(node, device, tensor, overlap=False)
    assert snapshots.snapshot(0)
    first = dict(device.pinned)
    assert len(first) == 3
    assert snapshots.snapshot(1)
    assert device.pinned == first

    tensor.data = bytearray(1024 * 1024)
    assert snapshots.snapshot(2)
    assert len(device.pinned) == 3
    assert min(device.pinned.values()) >= 1024 * 1024


def test_a_device_that_fails_costs_a_step_and_no_training(node: Node) -> None:
    class Broken(FakeDevice):
        """Cannot copy."""

        def copy(self, device: int, copies: object, after: object) -> object:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    snapshots = begin(node, Broken(), Tensor(bytearray(8)), overlap=True)
    assert snapshots.snapshot(0)
    snapshots.settle()
    assert not snapshots.join()
    assert snapshots.unsaved_steps == 1
    assert 0 not in node.vault.saved
