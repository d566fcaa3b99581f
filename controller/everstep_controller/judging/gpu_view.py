"""GPU view: what the GPUs of the judged nodes did in the last minutes, as arrays."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Agents tell of five seconds at once.
SLOT_NS = 5 * 10**9
# Three minutes of them are kept.
SLOTS = 36

Slots = NDArray[np.int64]
Clocks = NDArray[np.uint16]
Bytes = NDArray[np.uint8]


def _no_slots() -> Slots:
    return np.zeros(SLOTS, dtype=np.int64)


def _no_clocks() -> Clocks:
    return np.zeros((SLOTS, 0, 0), dtype=np.uint16)


def _no_bytes() -> Bytes:
    return np.zeros((SLOTS, 0, 0), dtype=np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """Samples of GPUs: arrays of slots (oldest first), nodes and GPUs; 0 is not known.

    Devices and models are those of a node's GPUs, in the order of the last axis.
    """

    devices: tuple[tuple[str, ...], ...] = ()
    models: tuple[tuple[str, ...], ...] = ()
    # When each slot begins, on the controller's timeline.
    begins_ns: Slots = field(default_factory=_no_slots)
    sm_clock_mhz: Clocks = field(default_factory=_no_clocks)
    # Seconds in which it was busy; all else is of these.
    busy: Bytes = field(default_factory=_no_bytes)
    # Bits of `HeldBy`.
    held: Bytes = field(default_factory=_no_bytes)
    pcie_width: Bytes = field(default_factory=_no_bytes)
    pcie_generation: Bytes = field(default_factory=_no_bytes)


@dataclass(frozen=True, slots=True)
class Work:
    """A job that steps, and since when its ranks are seen to step on the nodes that they have."""

    name: str
    since_ns: int
