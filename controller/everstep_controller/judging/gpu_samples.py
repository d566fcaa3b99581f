"""GPU samples: what the GPUs of every node did in the last minutes, in memory only."""

from collections.abc import Sequence

import numpy as np

from everstep_common.reports import GpuColumns
from everstep_controller.judging.gpu_view import SLOT_NS, SLOTS, Bytes, Clocks, GpuView, Slots

# Device addresses, and the model of each device.
_Devices = tuple[tuple[str, ...], tuple[str, ...]]
_NOBODY: _Devices = ((), ())


class GpuSamples:
    """Samples of GPUs by slots of five seconds on the controller's timeline; 0 is not known.

    A message that comes twice in a slot replaces the one before; one that is lost leaves it empty.
    """

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._devices: list[_Devices] = []
        self._slot: Slots = np.zeros((0, SLOTS), dtype=np.int64)
        # Slots, nodes, GPUs.
        self._clock: Clocks = np.zeros((SLOTS, 0, 0), dtype=np.uint16)
        # Busy seconds, what held the clocks down, and lanes and generation of the link.
        self._bytes: Bytes = np.zeros((4, SLOTS, 0, 0), dtype=np.uint8)

    def add(self, node: str, columns: GpuColumns, taken_ns: int) -> None:
        """Take what a node's GPUs did from a time on; columns that are too short count as 0."""
        count = len(columns.devices)
        index = self._index_of(node, count)
        slot = taken_ns // SLOT_NS
        place = slot % SLOTS
        known = self._devices[index]
        if known[0] != columns.devices or len(known[1]) != count:
            self._slot[index] = 0  # other GPUs have these places now
        self._devices[index] = (columns.devices, _models(columns))
        self._slot[index, place] = slot
        self._clock[place, index] = 0
        self._bytes[:, place, index] = 0
        whole = min(count, len(columns.sm_clock_mhz) // 2)
        clocks = np.frombuffer(columns.sm_clock_mhz, dtype="<u2", count=whole)
        self._clock[place, index, : len(clocks)] = clocks
        each = (columns.busy, columns.held, columns.pcie_width, columns.pcie_generation)
        for which, packed in enumerate(each):
            values = np.frombuffer(packed[:count], dtype=np.uint8)
            self._bytes[which, place, index, : len(values)] = values

    def copy(self) -> "GpuSamples":
        """Return what is known now, for another thread: this goes on to be written to."""
        copied = GpuSamples()
        copied._index, copied._devices = dict(self._index), list(self._devices)
        copied._slot, copied._clock = self._slot.copy(), self._clock.copy()
        copied._bytes = self._bytes.copy()
        return copied

    def view(self, nodes: Sequence[str], now_ns: int) -> GpuView:
        """Return what is known of these nodes, oldest slot first."""
        if not self._devices:
            return GpuView(devices=(_NOBODY[0],) * len(nodes), models=(_NOBODY[1],) * len(nodes))
        newest = now_ns // SLOT_NS
        slots = np.arange(newest - SLOTS + 1, newest + 1)
        which = np.array([self._index.get(node, -1) for node in nodes], dtype=np.intp)
        places = (slots % SLOTS)[:, None]
        stale = (which < 0) | (self._slot[which, places] != slots[:, None])
        clock, values = self._clock[places, which], self._bytes[:, places, which]
        clock[stale], values[:, stale] = 0, 0
        devices = [self._devices[i] if i >= 0 else _NOBODY for i in which]
        return GpuView(
            devices=tuple(names for names, _ in devices),
            models=tuple(models for _, models in devices),
            begins_ns=slots * SLOT_NS,
            sm_clock_mhz=clock,
            busy=values[0],
            held=values[1],
            pcie_width=values[2],
            pcie_generation=values[3],
        )

    def _index_of(self, node: str, count: int) -> int:
        index = self._index.get(node)
        if index is None:
            index = self._index[node] = len(self._devices)
            self._devices.append(_NOBODY)
        _, rows, width = self._clock.shape
        if index >= rows or count > width:
            rows = max(16, 2 * rows) if index >= rows else rows
            self._grow(rows, max(count, width))
        return index

    def _grow(self, rows: int, width: int) -> None:
        _, before, gpus = self._clock.shape
        slot, clock, values = self._slot, self._clock, self._bytes
        self._slot = np.zeros((rows, SLOTS), dtype=np.int64)
        self._clock = np.zeros((SLOTS, rows, width), dtype=np.uint16)
        self._bytes = np.zeros((4, SLOTS, rows, width), dtype=np.uint8)
        self._slot[:before] = slot
        self._clock[:, :before, :gpus] = clock
        self._bytes[:, :, :before, :gpus] = values


def _models(columns: GpuColumns) -> tuple[str, ...]:
    """Return the model of each GPU; "" where the columns do not say."""
    models, numbers = columns.models, columns.device_models
    return tuple(
        models[numbers[i]] if i < len(numbers) and numbers[i] < len(models) else ""
        for i in range(len(columns.devices))
    )
