"""Fault tables: NVIDIA's tables of error codes (Xid, SXid, NVLink) as values for the detectors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from everstep_agent.detectors.kernel.gpu_faults.nvlink_tables import Nvlink5Row, Xid74Row
from everstep_agent.detectors.kernel.gpu_faults.xid_table import XidTable


class SxidClass(Enum):
    """Reach of an error of an NVSwitch, mildest first."""

    CORRECTED = "corrected"
    NOTABLE = "notable"
    STALL = "stall"
    FATAL = "fatal"
    ALWAYS_FATAL = "always_fatal"


@dataclass(frozen=True, slots=True)
class SxidRow:
    """One row of tables/sxid.csv."""

    code: int
    kind: SxidClass
    name: str


@dataclass(frozen=True, slots=True)
class FaultTables:
    """All tables; empty ones make every code an unknown one."""

    xids: XidTable = field(default_factory=XidTable)
    nvlink5: tuple[Nvlink5Row, ...] = ()
    xid74: tuple[Xid74Row, ...] = ()
    sxids: Mapping[int, SxidRow] = field(default_factory=dict)
