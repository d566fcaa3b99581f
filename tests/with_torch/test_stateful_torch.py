"""torch models, optimizers and random numbers as shards, and back."""

import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from everstep.copy_engine.views import RestoreError, StateError
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Linear(width, 4)
        self.tied = nn.Linear(4, width, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.norm(self.first(x)), 0.5, self.training)
        out: torch.Tensor = self.second(hidden + self.tied(x))
        return out


class Training:
    def __init__(self, seed: int, optimizer: Callable[..., torch.optim.Optimizer]) -> None:
        torch.manual_seed(seed)
        self.model = Net()
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4], 0.3)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(16, 4)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return float(loss.detach())

    def state(self) -> dict[str, object]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_training_goes_on_bit_for_bit_in_a_new_process(
    optimizer: Callable[..., torch.optim.Optimizer], steps_before: int
) -> None:
    first = Training(1, optimizer)
    for _ in range(steps_before):
        first.step()
    store = ShardStore()
    store.save(0, capture_of(first.state(), Place()))
    wanted = [first.step() for _ in range(4)]

    again = Training(2, optimizer)
    random.seed(5)
    store.restore(0, capture_of(again.state(), Place()))
    assert [again.step() for _ in range(4)] == wanted


def test_a_step_is_taken_back_in_the_same_process() -> None:
    training = Training(1, torch.optim.AdamW)
    training.step()
    store = ShardStore()
    capture = capture_of(training.state(), Place())
    store.save(0, capture)
    wanted = [training.step() for _ in range(3)]
    store.restore(0, capture)
    assert [training.step() for _ in range(3)] == wanted


def test_tied_weights_are_saved_once() -> None:
    names = ShardStore().save(0, capture_of({"model": Net()}, Place()))
    assert "rank-0/model/first.weight" in names
    assert "rank-0/model/tied.weight" not in names


def test_optimizer_state_is_filed_under_the_parameters_names() -> None:
    training = Training(1, torch.optim.AdamW)
    training.step()
    names = ShardStore().save(3, capture_of(training.state(), Place(3, 4)))
    assert "rank-3/optimizer/state/model.first.weight/exp_avg" in names


def test_another_model_is_refused_before_anything_is_changed() -> None:
    store = ShardStore()
    store.save(0, capture_of({"model": Net()}, Place()))
    other = Net(width=9)
    before = [p.detach().clone() for p in other.parameters()]
    with pytest.raises(RestoreError, match=r"model/first\.weight.*\[?8, 4"):
        store.restore(0, capture_of({"model": other}, Place()))
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))

    store.save(0, capture_of({"model": nn.Linear(2, 2, bias=False)}, Place()))
    with pytest.raises(RestoreError, match="no tensor 'model/bias'"):
        store.restore(0, capture_of({"model": nn.Linear(2, 2)}, Place()))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (lambda m: [m.weight], "'model.bias' is only in one of the two"),
        (lambda m: [{"params": [m.weight]}, {"params": [m.bias]}], "grouped otherwise"),
    ],
)
def test_an_optimizer_of_other_parameters_is_refused_before_anything_is_changed(
    groups: Callable[[nn.Linear], list[dict[str, object]]], words: str
) -> None:
    def state(parameters: object) -> dict[str, object]:
        return {"model": model, "optimizer": torch.optim.SGD(parameters, 0.1)}  # type: ignore[arg-type]

    store, model = ShardStore(), nn.Linear(2, 2)
    store.save(0, capture_of(state(model.parameters()), Place()))
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    with pytest.raises(RestoreError, match=f"'optimizer' .*{words}.*begin a new job"):
        store.restore(0, capture_of(state(groups(model)), Place()))
    assert torch.equal(model.weight, before)


class Extra(nn.Linear):
    """Keeps something of no fixed shape beside its parameters."""

    extra: torch.Tensor

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        return {"history": self.extra}

    def set_extra_state(self, state: dict[str, torch.Tensor]) -> None:
        self.extra = state["history"]


def test_extra_state_of_a_module_may_have_another_shape() -> None:
    first, again = Extra(2, 2), Extra(2, 2)
    first.extra, again.extra = torch.arange(5.0), torch.zeros(0)
    store = ShardStore()
    store.save(0, capture_of({"model": first}, Place()))
    store.restore(0, capture_of({"model": again}, Place()))
    assert torch.equal(again.extra, first.extra)


class Holder:
    def __init__(self, **values: object) -> None:
        self.values = values

    def state_dict(self) -> dict[str, object]:
        return self.values

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.values = state


DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)], ids=str)
def test_every_dtype_and_shape_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape).mul(100).to(dtype)
    store = ShardStore()
    store.save(0, capture_of({"x": Holder(tensor=values, more=[values.clone()])}, Place()))
    into, new = Holder(tensor=torch.zeros(shape, dtype=dtype)), Holder()
    store.restore(0, capture_of({"x": into}, Place()))
    store.restore(0, capture_of({"x": new}, Place()))
    for holder in (into, new):
        found = holder.values["tensor"]
        assert isinstance(found, torch.Tensor)
        assert found.dtype == dtype
        assert found.shape == shape
        assert _bytes(found) == _bytes(values)


def _bytes(tensor: torch.Tensor) -> bytes:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return bytes(real.reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).reshape(4, 6).t(),
        lambda: torch.arange(24.0)[::3],
        lambda: torch.arange(96.0).reshape(2, 3, 4, 4).to(memory_format=torch.channels_last),
        lambda: torch.arange(4.0, requires_grad=True),
        lambda: torch.ones(3).expand(4, 3),
    ],
)
def test_strides_do_not_matter_to_an_object(make: Callable[[], torch.Tensor]) -> None:
    store = ShardStore()
    store.save(0, capture_of({"x": Holder(t=make())}, Place()))
    new = Holder()
    store.restore(0, capture_of({"x": new}, Place()))
    found = new.values["t"]
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, make())
    live = torch.zeros_like(make().detach())
    if make().stride()[0] == 0:
        live = live[:1].expand(*make().shape)
    store.restore(0, capture_of({"x": Holder(t=live)}, Place()))
    assert torch.equal(live, make())


def _nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is a prototype
        return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.ones(3).to_sparse(), "sparse"),
        (_nested(), "nested"),
        (torch.ones(3, device="meta"), "meta device"),
        (torch.ones(3, dtype=torch.complex64).conj(), "conjugate"),
    ],
)
def test_tensors_without_plain_memory_are_named(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(StateError, match=f"'x/deep/#1'.*{words}"):
        capture_of({"x": Holder(deep=[1, tensor])}, Place()).views()


def test_plain_tensors_are_restored_in_place_and_must_be_contiguous() -> None:
    weight = torch.arange(6, dtype=torch.bfloat16)
    store = ShardStore()
    assert store.save(0, capture_of({"w": weight}, Place())) == ("w",)
    wanted = weight.clone()
    weight.zero_()
    store.restore(0, capture_of({"w": weight}, Place()))
    assert torch.equal(weight, wanted)
    with pytest.raises(StateError, match="'w' must be contiguous"):
        capture_of({"w": torch.ones(3, 4).t()}, Place()).views()


def test_all_random_numbers_are_drawn_again() -> None:
    def draw(generator: np.random.Generator) -> list[float]:
        return [
            random.random(),
            random.gauss(0.0, 1.0),
            float(np.random.rand()),
            float(generator.random()),
            float(torch.rand(1)),
        ]

    from everstep.state.objects.random_state import RandomState

    generator = np.random.default_rng(3)
    random.gauss(0.0, 1.0)
    capture = capture_of({"noise": RandomState([generator])}, Place())
    store = ShardStore()
    store.save(0, capture)
    wanted = draw(generator)
    store.restore(0, capture)
    assert draw(generator) == wanted
