"""Stamp: when something happened, on the clocks of the node that saw it. Reads no clock."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common.bounds import Integer, Opaque


@dataclass(frozen=True, slots=True)
class Stamp:
    """Moment of an event, on the clocks of the node that saw it (nanoseconds)."""

    boot_id: Annotated[str, Opaque(1, 64, "the id of a boot")]
    boot_ns: Annotated[int, Integer(0, 10**18 - 1, unit="ns")]
    wall_ns: Annotated[int, Integer(0, 2**63 - 1, unit="ns")]
