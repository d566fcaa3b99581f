"""Snapshots of a real model on a real card: pinned slots, a side stream, the optimizer's wait."""

import ctypes
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep
from everstep.copy_engine.device_copies import DeviceCopies, DeviceCopy
from everstep.copy_engine.views import ShardView
from everstep.saving.mapping import Mapping
from fakes.passed_descriptors import sealed_memory
from integration.trainer_node import Node

try:
    import torch
except ImportError:
    pytest.skip("needs a GPU and torch", allow_module_level=True)

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use"),
]

MIB = 1024 * 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node.begin(tmp_path)
    yield node
    node.close()


@pytest.fixture
def slot() -> Iterator[Mapping]:
    fd = sealed_memory(1024 * MIB)
    mapping = Mapping(fd, 1024 * MIB, writable=True)
    os.close(fd)
    yield mapping
    mapping.close()


def shard(tensor: torch.Tensor) -> ShardView:
    size = tensor.numel() * tensor.element_size()
    return ShardView("w", "U8", tuple(tensor.shape), size, tensor.data_ptr(), tensor, cuda=tensor)


def arrived(slot: Mapping, tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.numel() * tensor.element_size()
    memory = (ctypes.c_ubyte * size).from_address(slot.address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape)


def test_memory_of_the_agent_can_be_pinned_and_given_back(slot: Mapping) -> None:
    from everstep.copy_engine.cuda import TorchCuda, bytes_of

    cuda = TorchCuda()
    for _ in range(3):
        cuda.pin(slot.address, slot.size_bytes)
        assert bytes_of(slot.address, slot.size_bytes).is_pinned()
        cuda.unpin(slot.address)
        assert not bytes_of(slot.address, slot.size_bytes).is_pinned()


def test_memory_that_cannot_be_pinned_leaves_no_error_for_training(slot: Mapping) -> None:
    from everstep.copy_engine.cuda import TorchCuda

    cuda = TorchCuda()
    cuda.pin(slot.address, slot.size_bytes)
    cuda.pin(slot.address, slot.size_bytes)  # registered already: CUDA refuses
    assert torch.ones(4, device="cuda").sum().item() == 4
    cuda.unpin(slot.address)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_is_of_the_step_though_the_next_one_is_queued_already(
    slot: Mapping, pinned: bool
) -> None:
    from everstep.copy_engine.cuda import TorchCuda

    cuda = TorchCuda()
    if pinned:
        cuda.pin(slot.address, slot.size_bytes)
    weights = torch.zeros(64 * MIB, dtype=torch.float32, device="cuda")
    for value in range(1, 20):
        weights.fill_(value)
        copies = DeviceCopies(cuda, [shard(weights)])
        copies.launch([DeviceCopy(weights, slot.address, weights.numel() * 4)])
        copies.hold()
        weights.fill_(-1)
        copies.wait()
        assert (arrived(slot, weights) == value).all()
    cuda.unpin(slot.address)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float64", "int64", "bool", "complex64", "float8_e4m3fn"]
)
def test_every_format_arrives_bit_by_bit(slot: Mapping, dtype: str) -> None:
    from everstep.copy_engine.cuda import TorchCuda, flat

    raw = torch.randint(0, 2, (4096,), dtype=torch.uint8, device="cuda")
    tensor = raw.view(getattr(torch, dtype)) if dtype != "bool" else raw.bool()
    copies = DeviceCopies(TorchCuda(), [shard(tensor)])
    copies.launch([DeviceCopy(tensor, slot.address, tensor.numel() * tensor.element_size())])
    copies.wait()
    assert torch.equal(flat(arrived(slot, tensor)), flat(tensor).cpu())


@pytest.mark.parametrize("overlap", [True, False])
def test_training_goes_on_from_a_snapshot_bit_by_bit(node: Node, overlap: bool) -> None:
    def objects() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(512, 2048), torch.nn.BatchNorm1d(2048), torch.nn.Linear(2048, 8)
        ).cuda()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(first: int, last: int, restore_step: int | None) -> list[bytes]:
        node.vault.restore_step = restore_step
        model, optimizer = objects()
        run = everstep.init(node.environ())
        snapshots = run.snapshots({"model": model, "optimizer": optimizer}, overlap=overlap)
        assert snapshots.restore() == restore_step
        losses = []
        for step in range(first, last):
            generator = torch.Generator("cuda").manual_seed(step)
            batch = torch.randn(64, 512, device="cuda", generator=generator)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert snapshots.snapshot(step)
            losses.append(loss.detach().cpu().numpy().tobytes())
        assert snapshots.join()
        assert run.unsaved_steps == 0
        return losses

    torch.use_deterministic_algorithms(True, warn_only=True)
    whole = train(0, 12, None)
    assert train(6, 12, 5) == whole[6:]


def test_the_copy_is_as_fast_as_pinned_memory_allows(slot: Mapping) -> None:
    from everstep.copy_engine.cuda import TorchCuda, flat

    cuda = TorchCuda()
    cuda.pin(slot.address, slot.size_bytes)
    tensor = torch.ones(slot.size_bytes, dtype=torch.uint8, device="cuda")
    limit = torch.empty(slot.size_bytes, dtype=torch.uint8, pin_memory=True)

    def ours() -> None:
        copies = DeviceCopies(cuda, [shard(tensor)])
        copies.launch([DeviceCopy(tensor, slot.address, slot.size_bytes)])
        copies.wait()

    def pinned() -> None:
        limit.copy_(flat(tensor), non_blocking=True)
        torch.cuda.synchronize()

    def seconds(copy: "object") -> float:
        assert callable(copy)
        began = time.perf_counter()
        copy()
        return time.perf_counter() - began

    pairs = [(seconds(ours), seconds(pinned)) for _ in range(9)]
    share = min(limit for _, limit in pairs[1:]) / min(own for own, _ in pairs[1:])
    if place := os.environ.get("EVERSTEP_KEEP_READING"):
        Path(place).write_text(json.dumps({"share_of_pinned_limit": share, "seconds": pairs}))
    assert share >= 0.9
    cuda.unpin(slot.address)
