"""GPU columns: what a node's GPUs did in the seconds of a message of samples, packed. Pure."""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag

from everstep_common import quantities as q
from everstep_common.reports.nodes import GpuColumns

# What a column of 16 bits holds; a larger clock is a wrong reading, and not known.
_CLOCK_MAX = 2**16 - 1
_BYTE_MAX = 255


class HeldBy(IntFlag):
    """Reasons that hold a GPU's clocks down, alike for all vendors."""

    POWER_BRAKE = 1
    HARDWARE = 2
    HEAT = 4
    # By its work: it draws all the power that it may.
    POWER_CAP = 8
    # By an operator, who has set the clocks or ties them to those of other GPUs.
    SETTING = 16
    IDLE = 32
    # In one of the seconds the driver did not say.
    UNKNOWN = 128


@dataclass(frozen=True, slots=True)
class GpuRow:
    """What one GPU did in the seconds in which it was busy."""

    device: str
    model: str
    busy: int = 0
    # 0: not known, as all that follows.
    sm_clock_mhz: int = 0
    held: int = 0
    pcie_width: int = 0
    pcie_generation: int = 0


def pack_gpus(rows: Sequence[GpuRow]) -> GpuColumns | None:
    """Return them as columns; None for no GPUs. What does not fit its column is not known."""
    rows = rows[: q.GPUS_OF_NODE_MAX]
    if not rows:
        return None
    models = tuple(sorted({row.model for row in rows}))
    clocks = array("H", [_within(row.sm_clock_mhz, _CLOCK_MAX) for row in rows])
    if sys.byteorder == "big":
        clocks.byteswap()
    return GpuColumns(
        devices=tuple(row.device for row in rows),
        models=models,
        device_models=bytes(models.index(row.model) for row in rows),
        busy=bytes(min(row.busy, _BYTE_MAX) for row in rows),
        sm_clock_mhz=clocks.tobytes(),
        held=bytes(row.held & _BYTE_MAX for row in rows),
        pcie_width=bytes(_within(row.pcie_width, _BYTE_MAX) for row in rows),
        pcie_generation=bytes(_within(row.pcie_generation, _BYTE_MAX) for row in rows),
    )


def _within(value: int, most: int) -> int:
    return value if 0 < value <= most else 0
