"""A device in this process: streams run when somebody waits, in the order that CUDA guarantees."""

import ctypes
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep.copy_engine.device_copies import DeviceCopy


@dataclass(slots=True)
class Tensor:
    """Bytes on a device. ``alive`` is False once its memory may be used for another one."""

    data: bytearray
    device: int = 0
    alive: bool = True
    # How often training has changed it, counted when the change is queued, as torch does.
    _version: int = 0


@dataclass(slots=True)
class Stream:
    """What a device has been given to do, one after the other."""

    queue: list[Callable[[], None]] = field(default_factory=list)
    done: int = 0

    def run(self, until: int) -> None:
        """Do what was given up to a place in the order."""
        while self.done < until:
            self.done += 1
            self.queue[self.done - 1]()


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the order of a stream."""

    stream: Stream
    place: int

    def reach(self) -> None:
        """Let the stream come to it."""
        self.stream.run(self.place)


class FakeDevice:
    """The Device that a test can look into. Nothing runs before somebody waits for it."""

    def __init__(self) -> None:
        self.training: dict[int, Stream] = defaultdict(Stream)
        self.side: dict[int, Stream] = defaultdict(Stream)
        self.pinned: dict[int, int] = {}

    def compute(self, device: int, kernel: Callable[[], None]) -> None:
        """Give training's stream something to do."""
        self.training[device].queue.append(kernel)

    def pin(self, address: int, size_bytes: int) -> None:
        """See Pinner."""
        assert address not in self.pinned
        self.pinned[address] = size_bytes

    def unpin(self, address: int) -> None:
        """See Pinner."""
        del self.pinned[address]

    def device_of(self, tensor: object) -> int:
        """See Device."""
        assert isinstance(tensor, Tensor)
        return tensor.device

    def clone(self, tensor: object) -> object:
        """See Device."""
        assert isinstance(tensor, Tensor)
        copy = Tensor(bytearray(len(tensor.data)), tensor.device)
        self.compute(tensor.device, lambda: copy.data.__setitem__(slice(None), tensor.data))
        return copy

    def mark(self, device: int) -> object:
        """See Device."""
        return Mark(self.training[device], len(self.training[device].queue))

    def copy(self, device: int, copies: Sequence[DeviceCopy], after: object) -> object:
        """See Device."""
        assert isinstance(after, Mark)
        side = self.side[device]
        side.queue.append(after.reach)
        side.queue += [_Arrival(copy) for copy in copies]
        return Mark(side, len(side.queue))

    def hold(self, device: int, mark: object) -> None:
        """See Device."""
        assert isinstance(mark, Mark)
        self.compute(device, mark.reach)

    def wait(self, mark: object) -> None:
        """See Device."""
        assert isinstance(mark, Mark)
        mark.reach()


@dataclass(frozen=True, slots=True)
class _Arrival:
    copy: DeviceCopy

    def __call__(self) -> None:
        tensor = self.copy.tensor
        assert isinstance(tensor, Tensor)
        assert tensor.alive, "the memory of a tensor was used anew during its copy"
        ctypes.memmove(self.copy.address, bytes(tensor.data), self.copy.size_bytes)
