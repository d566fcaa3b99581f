"""Device copies into a slot: on streams of their own, so that training computes meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from everstep.copy_engine.views import ShardView


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A tensor on a device, and where its bytes go in this process's memory."""

    tensor: object
    address: int
    size_bytes: int


class Device(Protocol):
    """Runtime of a device, as copies need it. Marks are events: places in a stream's order."""

    def pin(self, address: int, size_bytes: int) -> None:
        """See Pinner."""
        ...

    def unpin(self, address: int) -> None:
        """See Pinner."""
        ...

    def device_of(self, tensor: object) -> int:
        """Return the number of the device that a tensor lies on."""
        ...

    def clone(self, tensor: object) -> object:
        """Return a copy on the device, of what the tensor is where training has come to."""
        ...

    def mark(self, device: int) -> object:
        """Return a mark behind all that training has given the device to do so far."""
        ...

    def copy(self, device: int, copies: Sequence[DeviceCopy], after: object) -> object:
        """Give the device's own stream for copies these, after a mark; return one behind them."""
        ...

    def hold(self, device: int, mark: object) -> None:
        """What training gives the device from here on begins after the mark."""
        ...

    def wait(self, mark: object) -> None:
        """Return, without the GIL meanwhile, when the device has come to the mark."""
        ...


class DeviceCopies:
    """The device copies of one snapshot. Made where the state is complete: between two steps."""

    def __init__(self, device: Device, shards: Sequence[ShardView]) -> None:
        self._device = device
        tensors = [shard.cuda for shard in shards if shard.cuda is not None]
        numbers = sorted({device.device_of(tensor) for tensor in tensors})
        self._begins = {number: device.mark(number) for number in numbers}
        self._ends: dict[int, object] = {}

    @property
    def pinner(self) -> Device:
        """Return who can make memory known to the driver."""
        return self._device

    def launch(self, copies: Sequence[DeviceCopy]) -> None:
        """Give the devices their copies; returns before they are done."""
        for number, begin in self._begins.items():
            mine = [copy for copy in copies if self._device.device_of(copy.tensor) == number]
            self._ends[number] = self._device.copy(number, mine, begin)

    def hold(self) -> None:
        """Let what changes the state wait on the device, not in this thread."""
        for number, end in list(self._ends.items()):
            self._device.hold(number, end)

    def wait(self) -> None:
        """Return when every byte has arrived."""
        for end in self._ends.values():
            self._device.wait(end)
