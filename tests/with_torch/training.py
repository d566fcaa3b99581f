"""What a rank of a test world does: a small model, trained, saved and restored."""

import warnings
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    OptimizerStateType,
    ValueType,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from everstep.checkpoint import VaultReader, VaultWriter
from everstep.copy_engine.views import Capture
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore, StoreRun
from with_torch.world import saved


class Net(nn.Module):
    """Odd sizes: with three or more ranks some have less of a tensor, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(7, 10)
        self.norm = nn.LayerNorm(7)
        self.outer = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(self.norm(x)))
        out: torch.Tensor = self.outer(nn.functional.dropout(hidden, 0.1, self.training))
        return out


class Training:
    def __init__(self, kind: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = _wrapped(Net(), kind)
        torch.manual_seed(seed + dist.get_rank())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, step: int) -> float:
        batch = torch.randn(12, 7, generator=torch.Generator().manual_seed(step))
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def capture(self) -> Capture:
        place = Place(dist.get_rank(), dist.get_world_size())
        return capture_of({"model": self.model, "optimizer": self.optimizer}, place)

    def full(self) -> dict[str, torch.Tensor]:
        """Return every parameter and its optimizer state, whole."""
        found = dict(self.model.named_parameters())
        named = {id(p): n for n, p in found.items()}
        for parameter, state in self.optimizer.state.items():
            found |= {f"{named[id(parameter)]}.{key}": value for key, value in state.items()}
        whole = {
            name: value.full_tensor() if isinstance(value, DTensor) else value
            for name, value in found.items()
        }
        return {name.removeprefix("module."): v.detach().clone() for name, v in whole.items()}


def _wrapped(net: nn.Module, kind: str) -> nn.Module:
    world = dist.get_world_size()
    if kind == "ddp":
        return DistributedDataParallel(net)
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
        _fully_shard(net, mesh)
    elif kind == "hsdp":
        _fully_shard(net, init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("r", "s")))
    elif kind == "tp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        plan = {"inner": ColwiseParallel(), "outer": RowwiseParallel()}
        parallelize_module(net, mesh["tp"], plan)
        _fully_shard(net, mesh["dp"])
    return net


def _fully_shard(net: nn.Module, mesh: DeviceMesh) -> None:
    for child in net.children():
        fully_shard(child, mesh=mesh)
    fully_shard(net, mesh=mesh)


def train(kind: str, steps: int, more: int) -> tuple[ShardStore, list[float], dict[str, object]]:
    warnings.simplefilter("ignore")
    training = Training(kind, seed=1)
    for step in range(steps):
        training.step(step)
    store = saved(training.capture())
    full = training.full()
    return store, [training.step(step) for step in range(steps, steps + more)], dict(full)


def resume(
    kind: str, store: ShardStore, steps: int, more: int
) -> tuple[dict[str, object], tuple[str, ...], ShardStore, list[float]]:
    warnings.simplefilter("ignore")
    training = Training(kind, seed=2)
    asked = store.restore(dist.get_rank(), training.capture())
    again = saved(training.capture())
    full = training.full()
    losses = [training.step(step) for step in range(steps, steps + more)]
    return dict(full), asked, again, losses


def placed(placements: list[object], shape: tuple[int, ...]) -> ShardStore:
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2))
    count = int(torch.Size(shape).numel())
    source = torch.arange(float(count)).reshape(shape)
    tensor = distribute_tensor(source, mesh, placements)  # type: ignore[arg-type]
    return saved(_held(tensor))


def replaced(placements: list[object], shape: tuple[int, ...], store: ShardStore) -> bool:
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1))
    tensor = distribute_tensor(torch.zeros(shape), mesh, placements)  # type: ignore[arg-type]
    store.restore(dist.get_rank(), _held(tensor))
    wanted = torch.arange(float(tensor.numel())).reshape(shape)
    return torch.equal(tensor.full_tensor(), wanted)


def _held(tensor: DTensor) -> Capture:
    place = Place(dist.get_rank(), dist.get_world_size())
    return capture_of({"x": Held(tensor)}, place)


class Held:
    def __init__(self, tensor: DTensor) -> None:
        self.tensor = tensor

    def state_dict(self) -> dict[str, object]:
        return {"t": self.tensor}

    def load_state_dict(self, state: dict[str, object]) -> None:
        assert state["t"] is self.tensor


class Counter:
    """A Stateful that is no tensor: torch.distributed.checkpoint saves it as bytes."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count, "names": ["a", "b"]}

    def load_state_dict(self, state: dict[str, object]) -> None:
        assert state["names"] == ["a", "b"]
        self.count = int(str(state["count"]))


def checkpoint(kind: str, step: int, checkpoint_id: str | None) -> StoreRun:
    """Train a step and save it by torch.distributed.checkpoint."""
    warnings.simplefilter("ignore")
    training, counter = Training(kind, seed=1), Counter()
    counter.count = 41
    training.step(0)
    run = StoreRun(dist.get_rank(), ShardStore())
    writer = VaultWriter(run)
    state = {"app": _dcp_state(training), "counter": counter}
    if checkpoint_id is None:
        save(state, storage_writer=writer.at(step))
    else:
        save(state, checkpoint_id=checkpoint_id, storage_writer=writer)
    assert run.step == step
    return run


def load_checkpoint(kind: str, store: ShardStore, whole: dict[str, object]) -> bool:
    """Load what ranks of another world saved, and compare it to the whole tensors."""
    warnings.simplefilter("ignore")
    training, counter = Training(kind, seed=2), Counter()
    state: dict[str, object] = {"app": _dcp_state(training), "counter": counter}
    load(state, storage_reader=VaultReader(StoreRun(dist.get_rank(), store, step=3)))
    app = cast(dict[str, dict[str, object]], state["app"])
    set_state_dict(
        training.model,
        training.optimizer,
        model_state_dict=cast(dict[str, ValueType], app["model"]),
        optim_state_dict=cast(OptimizerStateType, app["optimizer"]),
    )
    found = training.full()
    same = all(torch.equal(found[name], cast(torch.Tensor, whole[name])) for name in whole)
    return same and counter.count == 41


def _dcp_state(training: Training) -> dict[str, object]:
    model, optimizer = get_state_dict(training.model, training.optimizer)
    return {"model": model, "optimizer": optimizer}


def names_of_ddp(inside: bool) -> list[str]:
    """Return the shards that each rank of a model with buffers saves, of DDP's or the one in it."""
    model = DistributedDataParallel(nn.BatchNorm1d(4))
    place = Place(dist.get_rank(), dist.get_world_size())
    state = {"model": model.module if inside else model}
    equal = [model] if inside else []
    return [view.name for view in capture_of(state, place, equal).views()]
