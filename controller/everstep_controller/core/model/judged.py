"""Judged isolations: for what automation isolates nodes, or would if it were allowed to."""

from dataclasses import dataclass

# So many that are over are kept: of a fleet of 16,384 GPUs with a fault in three hours, a year.
JUDGED_MAX = 4096


@dataclass(slots=True)
class JudgedIsolation:
    """One node and one condition for which automation isolates nodes, where that is enforced."""

    node: str
    condition: str
    # Since when there was a reason; until when, 0 while there is; and whether it was isolated.
    at_ns: int
    over_ns: int = 0
    done: bool = False
