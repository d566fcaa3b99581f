"""Copies from a device: after the step that made the state, before the one that changes it."""

import ctypes
from functools import partial

from everstep.copy_engine.device_copies import DeviceCopies, DeviceCopy
from everstep.copy_engine.views import ShardView
from everstep.saving.early import Early
from everstep.saving.step_saving import Witness
from fakes.device import FakeDevice, Tensor


def shard(tensor: Tensor, name: str = "w") -> ShardView:
    size = len(tensor.data)
    return ShardView(name, "U8", (size,), size, id(tensor), tensor, cuda=tensor)


def fill(tensor: Tensor, value: int) -> None:
    tensor.data[:] = bytes([value]) * len(tensor.data)


class Slot:
    """Memory to copy into."""

    def __init__(self, size: int = 8) -> None:
        self._memory = (ctypes.c_ubyte * size)()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._memory)

    def __bytes__(self) -> bytes:
        return bytes(self._memory)


def test_a_copy_comes_after_the_step_that_is_still_being_computed() -> None:
    device, tensor, slot = FakeDevice(), Tensor(bytearray(8)), Slot()
    device.compute(0, lambda: fill(tensor, 1))
    copies = DeviceCopies(device, [shard(tensor)])
    copies.launch([DeviceCopy(tensor, slot.address, 8)])
    copies.wait()
    assert bytes(slot) == b"\1" * 8


def test_the_next_update_waits_on_the_device_for_the_copy() -> None:
    device, tensor, slot = FakeDevice(), Tensor(bytearray(8)), Slot()
    device.compute(0, lambda: fill(tensor, 1))
    copies = DeviceCopies(device, [shard(tensor)])
    copies.launch([DeviceCopy(tensor, slot.address, 8)])
    copies.hold()
    device.compute(0, lambda: fill(tensor, 2))
    # Training's stream runs first; without the hold the copy would see the update.
    device.training[0].run(len(device.training[0].queue))
    copies.wait()
    assert bytes(slot) == b"\1" * 8


def test_what_training_computes_before_the_update_does_not_wait() -> None:
    device, tensor, slot = FakeDevice(), Tensor(bytearray(8)), Slot()
    copies = DeviceCopies(device, [shard(tensor)])
    copies.launch([DeviceCopy(tensor, slot.address, 8)])
    seen: list[bytes] = []
    device.compute(0, lambda: seen.append(bytes(slot)))
    device.training[0].run(1)
    assert seen == [bytes(8)]
    assert device.side[0].done == 0


def test_each_device_has_its_own_order() -> None:
    device = FakeDevice()
    tensors = [Tensor(bytearray(8), number) for number in (0, 1)]
    slots = [Slot(), Slot()]
    for number, tensor in enumerate(tensors):
        device.compute(number, partial(fill, tensor, number + 5))
    copies = DeviceCopies(device, [shard(tensor) for tensor in tensors])
    copies.launch(
        [DeviceCopy(one, slot.address, 8) for one, slot in zip(tensors, slots, strict=True)]
    )
    copies.wait()
    assert [bytes(slot) for slot in slots] == [b"\5" * 8, b"\6" * 8]
    assert sorted(device.side) == [0, 1]


class Model:
    """A model with one parameter and one buffer."""

    def __init__(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def named_buffers(self) -> list[tuple[str, "Model"]]:
        return [("mean", self)]

    def data_ptr(self) -> int:
        return id(self._buffer)


def test_what_a_forward_pass_changes_is_copied_on_the_device_at_once() -> None:
    device, weight, mean = FakeDevice(), Tensor(bytearray(8)), Tensor(bytearray(8))
    device.compute(0, lambda: fill(mean, 3))
    shards = (shard(weight, "weight"), shard(mean, "mean"))
    detached = Early({"model": Model(mean), "other": object()}).detach(shards, device)
    device.compute(0, lambda: fill(mean, 4))
    device.training[0].run(3)
    assert detached[0] is shards[0]
    copy = detached[1].cuda
    assert isinstance(copy, Tensor)
    assert bytes(copy.data) == b"\3" * 8


def test_what_was_copied_on_the_device_may_change_while_the_rest_is_saved() -> None:
    weight, mean = Tensor(bytearray(8)), Tensor(bytearray(8))
    shards = (shard(weight, "weight"), shard(mean, "mean"))
    witness = Witness(Early({"model": Model(mean)}).detach(shards, FakeDevice()))
    mean._version += 1
    assert witness.changed() == ""
    weight._version += 1
    assert witness.changed() == "weight"


def test_memory_that_a_forward_pass_changes_is_copied_at_once() -> None:
    memory = (ctypes.c_ubyte * 8)(*[7] * 8)
    address = ctypes.addressof(memory)

    class Buffer:
        def data_ptr(self) -> int:
            return address

    class Module:
        def named_buffers(self) -> list[tuple[str, Buffer]]:
            return [("mean", Buffer())]

    before = ShardView("mean", "U8", (8,), 8, address, memory)
    (after,) = Early({"model": Module()}).detach((before,), None)
    memory[0] = 9
    assert ctypes.string_at(after.address, 8) == b"\7" * 8


class Loader:
    """A stateful object that nobody knows."""

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: object) -> None:
        return None


class Optimizer(Loader):
    """A stateful object that has its state change in a step that can be waited for."""

    def register_step_pre_hook(self, hook: object) -> None:
        return None


def test_what_no_optimizer_holds_back_is_copied_at_once() -> None:
    memory = (ctypes.c_ubyte * 8)()
    address = ctypes.addressof(memory)
    names = ("rank-1/loader/seen", "loader/seen", "optimizer/state/w", "array")
    shards = tuple(ShardView(name, "U8", (8,), 8, address, memory) for name in names)
    early = Early({"loader": Loader(), "optimizer": Optimizer(), "array": memory})
    after = early.detach(shards, None)
    assert [shard.address == address for shard in after] == [False, False, True, True]
